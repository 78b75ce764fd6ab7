// Plans, and so graphs, that decode steps with keys apart need: lengths, guests and pages are data.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "braid/backend/null/null_backend.h"
#include "braid/engine/absent_world.h"
#include "braid/engine/step_planners.h"
#include "braid/model/model_shape.h"

namespace braid {
namespace {

constexpr int kRanks = 4;
constexpr int64_t kPages = 4096;

class CountedWorld : public AbsentWorld {
 public:
  using AbsentWorld::AbsentWorld;
  std::vector<std::unique_ptr<Executor>> bind(PlannedForward planned, bool beside) override {
    ++binds;
    return AbsentWorld::bind(std::move(planned), beside);
  }
  int binds = 0;
};

class ApartPlans : public ::testing::Test {
 protected:
  // A sequence with keys in pages of its own.
  struct Keys {
    std::vector<int32_t> pages;
    int64_t cached = 0;
    int group = -1;
  };

  Keys sequence(int64_t tokens, int group) {
    Keys keys{.pages = std::vector<int32_t>(static_cast<size_t>(ceil_div(tokens, kPageSize))),
              .group = group};
    std::iota(keys.pages.begin(), keys.pages.end(), next_page_);
    next_page_ += static_cast<int32_t>(keys.pages.size());
    return keys;
  }
  // The next `tokens` tokens of each; the number of plans made.
  int step(std::span<Keys* const> sequences, int64_t tokens) {
    const int before = world_.binds;
    Batch batch(kPageSize);
    const std::vector<int32_t> ids(static_cast<size_t>(tokens));
    for (Keys* s : sequences) {
      batch.add(ids, s->cached, s->pages, 1, s->group);
      s->cached += tokens;
    }
    while (planner_->prepare_first(batch)) planner_->record();
    planner_->prepare(batch);
    planner_->record();
    return world_.binds - before;
  }

  const Model model_{
      read_model_shape(std::string(BRAID_TEST_DATA) + "/../configs/llama-3-8b-1m.json"), 1};
  const RunnerConfig config_{.tp = kRanks,
                             .sp = SequenceParallel{.mode = SpMode::ring},
                             .cache = {.pages = kPages,
                                       .page_size = kPageSize,
                                       .pages_per_sequence = kPages,
                                       .kv_dtype = DType::bf16},
                             .schedule = "sequence_parallel"};
  const NullBackend backend_;
  CountedWorld world_{backend_.catalog()};
  const std::unique_ptr<StepPlanner> planner_ =
      make_step_planner(model_, config_, meshes_of(model_, config_), world_);
  int32_t next_page_ = 0;
};

TEST_F(ApartPlans, OneForAllLengthsOfADividedRequest) {
  Keys keys = sequence(8000, -1);
  Keys* const all[] = {&keys};
  EXPECT_EQ(step(all, 5000), 1) << "the prompt's";
  int plans = 0;
  for (int i = 0; i < 2500; ++i) plans += step(all, 1);
  EXPECT_EQ(plans, 1) << "2,500 tokens on 40 pages";
}

// Own sequences join, grow over pages, and leave beside a divided one, none to four on each rank in
// any mixture. A plan is for the most own tokens of a rank (none, 1, 2, 4), and for rows of logits
// to a power of four.
TEST_F(ApartPlans, FewForRequestsThatComeAndGo) {
  Keys divided = sequence(12000, -1);
  Keys* const first[] = {&divided};
  step(first, 5000);
  std::vector<Keys> own;
  for (int i = 0; i < 4 * kRanks; ++i) own.push_back(sequence(900, i % kRanks));
  for (Keys& keys : own) {
    Keys* const one[] = {&keys};
    step(one, 300);
  }
  std::mt19937 random(5);
  int plans = 0;
  for (int i = 0; i < 600; ++i) {
    std::vector<Keys*> batch = {&divided};
    for (Keys& keys : own) {
      if (random() % 2 == 0) batch.push_back(&keys);
    }
    plans += step(batch, 1);
  }
  EXPECT_LE(plans, 8);
}

}  // namespace
}  // namespace braid
