// Masks of sequences that have slots in a queue of two steps, without a device.
#include <gmock/gmock.h>

#include <deque>
#include <map>
#include <set>
#include <thread>

#include "braid/base/clock.h"
#include "braid/engine/requests/request_steps.h"
#include "golden/support/held_masks.h"
#include "golden/support/request_loop_fixture.h"

namespace braid::golden {
namespace {

constexpr int64_t kMost = 1500;  // tokens of an answer
constexpr int32_t kFree = 77;    // the token of a sequence without a mask

// Chooses the first token that a slot's mask allows.
class SlotQueue : public StepQueue {
 public:
  explicit SlotQueue(int64_t vocabulary)
      : vocabulary_(vocabulary), rows_(static_cast<size_t>(8 * vocabulary)) {}

  int depth() const override { return 2; }
  int64_t slots() const override { return 4; }
  bool join(int32_t slot, const SlotSequence& sequence) override {
    if (sequence.request.mask) masked_.insert(slot);
    return true;
  }
  void leave(int32_t slot) override { masked_.erase(slot); }
  void allow(int32_t slot, std::span<const uint32_t> mask) override {
    int32_t id = 0;
    while ((mask[static_cast<size_t>(id / 32)] >> (id % 32) & 1) == 0) ++id;
    EXPECT_TRUE(next_.emplace(slot, id).second);
  }
  void put(const Batch&, std::span<const int32_t> row_slots) override {
    std::vector<SlotToken> tokens;
    for (const int32_t slot : row_slots) {
      if (slot < 0) {
        ++by_host;
        continue;
      }
      EXPECT_EQ(masked_.contains(slot), next_.contains(slot)) << "a step without its mask";
      tokens.push_back({.token = {.id = masked_.contains(slot) ? next_[slot] : kFree}});
    }
    next_.clear();
    steps_.push_back(std::move(tokens));
  }
  bool usable() const override { return false; }
  EndedStep take() override {
    taken_ = std::move(steps_.front());
    steps_.pop_front();
    return {.tokens = taken_};
  }
  TensorView logits() override {
    std::ranges::fill(rows_, 0.0f);
    return make_view(reinterpret_cast<std::byte*>(rows_.data()), DType::f32, {8, vocabulary_});
  }
  TensorView device_logits() override { return logits(); }

  int64_t by_host = 0;  // rows

 private:
  const int64_t vocabulary_;
  std::vector<float> rows_;  // [8, V]
  std::set<int32_t> masked_;
  std::map<int32_t, int32_t> next_;  // slot to token
  std::deque<std::vector<SlotToken>> steps_;
  std::vector<SlotToken> taken_;
};

class MaskedSlotsTest : public LoopFixture {
 protected:
  MaskedSlotsTest() : scheduler_(config()), masks_(vocabulary()) {
    auto queue = std::make_unique<SlotQueue>(vocabulary());
    queue_ = queue.get();
    steps_ = std::make_unique<RequestSteps>(std::move(queue), scheduler_, kPageSize, ends_, [] {});
  }
  ~MaskedSlotsTest() override {
    masks_.let_pass(1000);
    for (const auto& [id, request] : active_) request->sampler.settle();
  }

  void submit(RequestId id, bool masked) {
    AnswerRequest request{.prompt = {1, 2, 3}, .max_tokens = kMost};
    if (masked) request.mask = masks_.mask();
    active_.add(id, std::make_shared<ActiveRequest>(id, request, loaded_->tokenizer, ends_,
                                                    DType::f32, std::make_shared<Collector>()));
    scheduler_.submit({.id = id, .ids = request.prompt, .max_tokens = kMost});
    steps_->prepare(active_.at(id));
  }
  // One turn as of RequestLoop: at most one step is put in, and at most one is taken.
  void turn() {
    const auto chosen = [](const auto&, const SampledToken&) {};
    for (const LateToken& late : steps_->look(active_, chosen)) take(late.id, late.token);
    const Step step = scheduler_.next(0);
    if (!step.empty()) steps_->put(step, active_);
    if (!steps_->full() && (!step.empty() || steps_->empty())) return;
    const EndedRequests ended = steps_->take(active_, chosen);
    size_t next = 0;
    for (const StepRow& row : ended.step.rows) {
      if (!row.sample) continue;
      const SampledToken& token = ended.tokens[next++];
      if (token.id != kPendingToken) take(row.id, token);
    }
  }
  void take(RequestId id, const SampledToken& token) {
    tokens_[id].push_back(token.id);
    steps_->prepare(active_.at(id));
  }
  // Turns until a request has so many tokens.
  void turn_until(RequestId id, size_t tokens) {
    const double end = steady_seconds() + 60;
    while (tokens_[id].size() < tokens && steady_seconds() < end) {
      const size_t before = tokens_[id].size();
      turn();
      // Others go on with each turn, and must not come to their end.
      if (tokens_[id].size() == before) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_GE(tokens_[id].size(), tokens);
  }

  const std::vector<int32_t> ends_;
  Scheduler scheduler_;
  HeldMasks masks_;
  SlotQueue* queue_ = nullptr;
  std::unique_ptr<RequestSteps> steps_;
  ActiveRequests active_;
  std::map<RequestId, std::vector<int32_t>> tokens_;
};

TEST_F(MaskedSlotsTest, StepsBeginWithTheirMasksAndOthersGoOn) {
  submit(1, true);
  submit(2, false);
  for (size_t held = 1; held < 10; ++held) {
    turn_until(1, held);
    ASSERT_TRUE(masks_.asked(held));
    turn_until(2, tokens_[2].size() + 5);
    EXPECT_EQ(tokens_[1].size(), held) << "a token without its mask";
    EXPECT_TRUE(steps_->waits());
    masks_.let_pass(held);
  }
  for (size_t i = 0; i < tokens_[1].size(); ++i) EXPECT_EQ(tokens_[1][i], masks_.wanted(i));
  for (const int32_t id : tokens_[2]) EXPECT_EQ(id, kFree);
  EXPECT_LE(queue_->by_host, 1) << "only a first mask may come behind its step's begin";
  // A busy machine may be late with the first mask, too, which nobody holds.
  EXPECT_GE(steps_->late_masks(), 9);
  EXPECT_LE(steps_->late_masks(), 10);
}

TEST_F(MaskedSlotsTest, ASequenceAloneWaitsForItsMasks) {
  submit(1, true);
  masks_.let_pass(30);
  turn_until(1, 30);
  for (size_t i = 0; i < 30; ++i) EXPECT_EQ(tokens_[1][i], masks_.wanted(i));
  EXPECT_LE(queue_->by_host, 1);
}

}  // namespace
}  // namespace braid::golden
