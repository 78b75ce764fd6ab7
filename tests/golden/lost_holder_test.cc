// Requests over ranks that divide prompts: a rank with keys does not answer in time.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "golden/support/request_loop_fixture.h"

namespace braid::golden {
namespace {

using testing::HasSubstr;

class Watched : public Collector {
 public:
  bool on_piece(const AnswerPiece& piece) override {
    begun_ = true;
    return Collector::on_piece(piece);
  }
  void wait_for_text() const {
    for (int i = 0; i < 6000 && !begun_; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(begun_);
  }

 private:
  std::atomic<bool> begun_ = false;
};

// Links carry a token's query and states in time, a long prompt's keys in three times the
// deadline: a step meets all ranks, so it ends the requests of all, and leaves none waiting.
TEST_F(LoopFixture, ALostHolderEndsEveryRequestWithTheDeadline) {
  constexpr int kRanks = 3;
  SchedulerConfig c = config();
  c.prompts_alone = true;
  c.groups = kRanks;
  c.own_prompt = 8;
  c.max_step_tokens = 512;
  Runner run(loaded_->model, {.tp = kRanks,
                              .sp = SequenceParallel{.mode = SpMode::ring},
                              .cache = {.pages = c.pages,
                                        .page_size = c.page_size,
                                        .pages_per_sequence = kSequencePages,
                                        .kv_dtype = DType::f32},
                              .links = {.machine_link = Link{1e4, 0}},
                              .deadline_ms = 1000});
  RequestLoop loop(run, loaded_->tokenizer, vocabulary(), DType::f32, c, {.on_host = true});
  const auto submit = [&](int tokens) {
    const auto sink = std::make_shared<Watched>();
    loop.submit({.prompt = std::vector<int32_t>(static_cast<size_t>(tokens), 7),
                 .max_tokens = 200,
                 .ignore_eos = true},
                sink);
    return sink;
  };
  std::vector<std::shared_ptr<Watched>> sinks{submit(12), submit(4)};  // divided, a rank's own
  for (const auto& sink : sinks) sink->wait_for_text();
  for (int tokens : {500, 4, 12}) sinks.push_back(submit(tokens));
  for (const auto& sink : sinks) {
    const AnswerEnd& end = sink->wait();
    EXPECT_EQ(end.reason, AnswerReason::error);
    ASSERT_TRUE(end.error.has_value());
    EXPECT_THAT(end.error->what(), HasSubstr("waited 1 s for"));
  }
  EXPECT_EQ(loop.stats().scheduler.pages.held, 0);
  EXPECT_THROW(submit(4), Error);
}

}  // namespace
}  // namespace braid::golden
