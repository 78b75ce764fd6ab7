// Masks that requests' own functions make on worker threads, some of them late.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "braid/base/clock.h"
#include "golden/support/held_masks.h"
#include "golden/support/request_loop_fixture.h"

namespace braid::golden {
namespace {

class MaskTest : public LoopFixture {};

TEST_F(MaskTest, MasksAreMadeAheadOneAtATimeAndNeverBehindTheEnd) {
  for (const int64_t pages : {96, 14}) {
    const SchedulerConfig c = config(pages);
    const auto run = runner(c);
    RequestLoop loop(*run, loaded_->tokenizer, vocabulary(), DType::f32, c);
    expect_short_answers(loop);
    struct Masked : Collector {
      void on_end(const AnswerEnd& end) override {
        ended = true;
        Collector::on_end(end);
      }
      std::vector<uint32_t> words;
      std::atomic<bool> inside = false, ended = false, wrong = false;
    };
    const auto wanted = [&](size_t request, size_t i) {
      return static_cast<int32_t>((7 * request + 13 * i) % static_cast<size_t>(vocabulary()));
    };
    std::vector<std::shared_ptr<Masked>> sinks;
    for (size_t r = 0; r < 24; ++r) {
      sinks.push_back(std::make_shared<Masked>());
      Masked* const sink = sinks.back().get();
      AnswerRequest request{.prompt = std::vector<int32_t>(20, static_cast<int32_t>(r)),
                            .max_tokens = 30,
                            .sampling = {.temperature = r % 2 == 0 ? 0.0f : 1.0f, .logprobs = 0},
                            .ignore_eos = true};
      request.mask = [&, sink, r](std::span<const int32_t> ids) -> std::span<const uint32_t> {
        if (sink->inside.exchange(true) || sink->ended) sink->wrong = true;
        sink->words.assign(static_cast<size_t>(ceil_div(vocabulary(), 32)), 0);
        const auto id = static_cast<size_t>(wanted(r, ids.size()));
        sink->words[id / 32] = uint32_t{1} << (id % 32);
        sink->inside = false;
        return sink->words;
      };
      const RequestId id = loop.submit(request, sinks.back());
      if (r % 6 == 5) loop.cancel(id);
    }
    for (size_t r = 0; r < sinks.size(); ++r) {
      const AnswerEnd end = sinks[r]->wait();
      EXPECT_EQ(end.reason, r % 6 == 5 ? end.reason : AnswerReason::length);
      for (size_t i = 0; i < sinks[r]->tokens.size(); ++i) {
        EXPECT_EQ(sinks[r]->tokens[i].id, wanted(r, i)) << "request " << r;
      }
    }
    ASSERT_TRUE(loop.drain(60));
    for (const auto& sink : sinks) EXPECT_FALSE(sink->wrong);
    EXPECT_EQ(loop.stats().scheduler.pages.held, 0);
    if (pages == 14) {
      EXPECT_GT(loop.stats().scheduler.preemptions, 0);
    }
  }
}

TEST_F(MaskTest, ALateMaskHoldsItsOwnRequestAlone) {
  const SchedulerConfig c = config();
  const auto run = runner(c);
  HeldMasks masks(vocabulary());
  RequestLoop loop(*run, loaded_->tokenizer, vocabulary(), DType::f32, c);
  AnswerRequest masked{
      .prompt = {1, 2, 3}, .max_tokens = 8, .sampling = {.logprobs = 0}, .ignore_eos = true};
  masked.mask = masks.mask();
  const auto sink = std::make_shared<Collector>();
  loop.submit(masked, sink);
  const AnswerRequest other{.prompt = {4, 5}, .max_tokens = 20, .ignore_eos = true};
  for (size_t held = 1; held < 8; ++held) {  // each mask but the first is late
    ASSERT_TRUE(masks.asked(held));
    EXPECT_EQ(answer(loop, other).end.answer_tokens, 20);
    EXPECT_GE(loop.stats().late_masks, static_cast<int64_t>(held));
    EXPECT_LT(steady_seconds() - loop.stats().last_turn, 30);
    masks.let_pass(held);
  }
  EXPECT_EQ(sink->wait().reason, AnswerReason::length);
  ASSERT_EQ(sink->tokens.size(), 8u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(sink->tokens[i].id, masks.wanted(i));
  EXPECT_TRUE(loop.drain(60));
  EXPECT_EQ(loop.stats().scheduler.pages.held, 0);
  // A busy machine may be late with the first mask, too, which nobody holds.
  EXPECT_GE(loop.stats().late_masks, 7);
  EXPECT_LE(loop.stats().late_masks, 8);
}

TEST_F(MaskTest, ARequestEndsBehindItsLateMaskAndHoldsNobody) {
  const SchedulerConfig c = config();
  const auto run = runner(c);
  HeldMasks masks(vocabulary());
  RequestLoop loop(*run, loaded_->tokenizer, vocabulary(), DType::f32, c);
  AnswerRequest masked{.prompt = {1, 2, 3}, .max_tokens = 8, .ignore_eos = true};
  masked.mask = masks.mask();
  const auto sink = std::make_shared<Collector>();
  const RequestId id = loop.submit(masked, sink);
  ASSERT_TRUE(masks.asked(1));
  loop.cancel(id);
  // Its pages are free at once; its sink hears of the end when the mask is there.
  EXPECT_EQ(answer(loop, {.prompt = {4, 5}, .max_tokens = 20}).end.reason, AnswerReason::length);
  EXPECT_EQ(loop.stats().scheduler.pages.held, 0);
  EXPECT_FALSE(loop.drain(0.01));
  masks.let_pass(1);
  EXPECT_EQ(sink->wait().reason, AnswerReason::abort);
  EXPECT_TRUE(loop.drain(60));
}

// Late masks at random, where pages are so few that requests are preempted meanwhile.
TEST_F(MaskTest, AnswersWithLateMasksAreThoseOfEachRequestAlone) {
  for (const int64_t pages : {96, 14}) {
    const SchedulerConfig c = config(pages);
    const auto run = runner(c);
    std::vector<AnswerRequest> requests;
    std::mt19937 random(17);
    for (int i = 0; i < 32; ++i) {
      requests.push_back(random_request(random, vocabulary()));
      if (i % 2 == 0) continue;
      requests.back().mask = random_mask(random(), vocabulary());
    }
    const std::vector<Answer> want = answers_alone(*run, c, requests);
    RequestLoop loop(*run, loaded_->tokenizer, vocabulary(), DType::f32, c);
    expect_short_answers(loop);
    std::vector<std::shared_ptr<Collector>> sinks;
    for (const AnswerRequest& request : requests) {
      sinks.push_back(std::make_shared<Collector>());
      loop.submit(request, sinks.back());
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "request " << i << ", " << pages << " pages");
      const AnswerEnd end = sinks[i]->wait();
      expect_equal({sinks[i]->text, end, sinks[i]->tokens, sinks[i]->prompt}, want[i]);
    }
    EXPECT_TRUE(loop.drain(60));
    EXPECT_EQ(loop.stats().scheduler.pages.held, 0);
    EXPECT_GT(loop.stats().late_masks, 0);
    if (pages == 14) {
      EXPECT_GT(loop.stats().scheduler.preemptions, 0);
    }
  }
}

}  // namespace
}  // namespace braid::golden
