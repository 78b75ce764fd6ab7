// Requests over ranks that divide prompts: a rank with keys is late, or does not answer in time.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "golden/support/late_thread.h"
#include "golden/support/request_loop_fixture.h"

namespace braid::golden {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class Watched : public Collector {
 public:
  // Calls `then` at the text's piece of number `at`.
  explicit Watched(int at = 0, std::function<void()> then = {}) : at_(at), then_(std::move(then)) {}

  bool on_piece(const AnswerPiece& piece) override {
    if (++pieces_ == at_) then_();
    return Collector::on_piece(piece);
  }
  void wait_for_text() const {
    for (int i = 0; i < 6000 && pieces_ == 0; ++i) std::this_thread::sleep_for(milliseconds(10));
    EXPECT_GT(pieces_, 0);
  }

 private:
  const int at_;
  const std::function<void()> then_;
  std::atomic<int> pieces_ = 0;
};

class HolderTest : public LoopFixture {
 protected:
  static constexpr int kRanks = 3;
  static constexpr int kTokens = 400;  // of an answer

  HolderTest() : c_(config()) {
    c_.prompts_alone = true;
    c_.groups = kRanks;
    c_.own_prompt = 8;
    c_.max_step_tokens = 512;
  }
  Runner ranks(int64_t deadline_ms, const fabric::LinkModel& links = {}) const {
    return {loaded_->model,
            {.tp = kRanks,
             .sp = SequenceParallel{.mode = SpMode::ring},
             .cache = {.pages = c_.pages,
                       .page_size = c_.page_size,
                       .pages_per_sequence = kSequencePages,
                       .kv_dtype = DType::f32},
             .links = links,
             .deadline_ms = deadline_ms}};
  }
  // Submits a prompt of `tokens` tokens.
  static std::shared_ptr<Watched> submit(RequestLoop& loop, int tokens,
                                         std::shared_ptr<Watched> sink) {
    loop.submit({.prompt = std::vector<int32_t>(static_cast<size_t>(tokens), 7),
                 .max_tokens = kTokens,
                 .ignore_eos = true},
                sink);
    return sink;
  }
  // Every request ends by the deadline, and the loop takes no other.
  static void expect_deadline(RequestLoop& loop,
                              const std::vector<std::shared_ptr<Watched>>& sinks) {
    for (const auto& sink : sinks) {
      const AnswerEnd& end = sink->wait();
      EXPECT_EQ(end.reason, AnswerReason::error);
      ASSERT_TRUE(end.error.has_value());
      EXPECT_THAT(end.error->what(), HasSubstr("waited 1 s for"));
      EXPECT_EQ(std::string_view(end.error->what()).find('\n'), std::string_view::npos);
    }
    EXPECT_EQ(loop.stats().scheduler.pages.held, 0);
    EXPECT_THROW(submit(loop, 4, std::make_shared<Watched>()), Error);
  }

  // A divided request and a rank's own answer; the last rank's thread is `late` at a token of the
  // first. Asks `check` of both answers.
  void decode_beside(
      int64_t deadline_ms, std::optional<milliseconds> late,
      const std::function<void(RequestLoop&, const std::vector<std::shared_ptr<Watched>>&)>&
          check) {
    const std::set<pid_t> before = threads_of_this_process();
    Runner run = ranks(deadline_ms);
    std::set<pid_t> threads = threads_of_this_process();
    for (const pid_t thread : before) threads.erase(thread);
    ASSERT_GE(std::ssize(threads), kRanks - 1);
    const pid_t last = *threads.rbegin();
    const LateThread stall(late.value_or(milliseconds(0)));
    RequestLoop loop(run, loaded_->tokenizer, vocabulary(), DType::f32, c_, {.on_host = true});
    std::vector<std::shared_ptr<Watched>> sinks;
    sinks.push_back(submit(loop, 4, std::make_shared<Watched>()));
    sinks[0]->wait_for_text();
    sinks.push_back(submit(loop, 50, std::make_shared<Watched>(20, [&, last] {
                             if (late) stall.stop(last);
                           })));
    check(loop, sinks);
    EXPECT_EQ(stall.stops(), late ? 1 : 0);
  }

  SchedulerConfig c_;
};

// Links carry a token's query and states in time, a long prompt's keys in three times the
// deadline: a step meets all ranks, so it ends the requests of all, and leaves none waiting.
TEST_F(HolderTest, ALostOneEndsEveryRequestWithTheDeadline) {
  Runner run = ranks(1000, {.machine_link = Link{1e4, 0}});
  RequestLoop loop(run, loaded_->tokenizer, vocabulary(), DType::f32, c_, {.on_host = true});
  std::vector<std::shared_ptr<Watched>> sinks;
  for (int tokens : {12, 4}) {  // divided, a rank's own
    sinks.push_back(submit(loop, tokens, std::make_shared<Watched>()));
  }
  for (const auto& sink : sinks) sink->wait_for_text();
  for (int tokens : {500, 4, 12}) {
    sinks.push_back(submit(loop, tokens, std::make_shared<Watched>()));
  }
  expect_deadline(loop, sinks);
}

TEST_F(HolderTest, ALateOneIsWaitedForWhileTokensAreMade) {
  std::vector<std::string> want;
  for (const auto& late : {std::optional<milliseconds>(), std::optional(milliseconds(250))}) {
    decode_beside(60000, late, [&](RequestLoop&, const auto& sinks) {
      std::vector<std::string> got;
      for (const auto& sink : sinks) {
        const AnswerEnd& end = sink->wait();
        EXPECT_EQ(end.reason, AnswerReason::length);
        EXPECT_EQ(end.answer_tokens, kTokens);
        got.push_back(sink->text);
      }
      if (late) {
        EXPECT_EQ(got, want);
      }
      want = got;
    });
  }
}

// Ranks are threads of a process here: a step ends once the late one is back.
TEST_F(HolderTest, AStoppedOneEndsEveryAnswerWithTheDeadline) {
  decode_beside(1000, milliseconds(2500), expect_deadline);
}

}  // namespace
}  // namespace braid::golden
