// Many requests in time against each of them alone: equal answers, whatever else runs.
#include "braid/engine/requests/request_loop.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cstdlib>
#include <random>

#include "braid/base/clock.h"
#include "golden/support/request_loop_fixture.h"

namespace braid::golden {
namespace {

using testing::HasSubstr;

class RequestLoopTest : public LoopFixture {
 protected:
  // Random requests at once, some of them cancelled: each answer is that of the request alone.
  // Returns the preemptions.
  int64_t many_beside_alone(uint32_t seed, const SchedulerConfig& c, int tp, int n) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << c.pages << " pages, tp " << tp);
    std::mt19937 random(seed);
    const auto run = runner(c, tp);
    std::vector<AnswerRequest> requests;
    for (int i = 0; i < n; ++i) {
      requests.push_back(random_request(random, vocabulary()));
      if (i % 8 == 7) requests.back().mask = random_mask(random(), vocabulary());
    }
    const std::vector<Answer> want = answers_alone(*run, c, requests);
    RequestLoop loop(*run, loaded_->tokenizer, vocabulary(), DType::f32, c);
    expect_short_answers(loop);
    std::vector<std::shared_ptr<Collector>> sinks;
    std::vector<bool> cancelled;
    for (const AnswerRequest& request : requests) {
      sinks.push_back(std::make_shared<Collector>());
      const RequestId id = loop.submit(request, sinks.back());
      cancelled.push_back(random() % 8 == 0);
      if (cancelled.back()) loop.cancel(id);
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "request " << i);
      const AnswerEnd end = sinks[i]->wait();
      if (cancelled[i] && end.reason == AnswerReason::abort) continue;
      expect_equal({sinks[i]->text, end, sinks[i]->tokens, sinks[i]->prompt}, want[i]);
    }
    EXPECT_TRUE(loop.drain(60));
    const Scheduler::Counts counts = loop.stats().scheduler;
    EXPECT_EQ(counts.pages.held, 0);
    EXPECT_EQ(counts.pages.free + counts.pages.cached, c.pages);
    if (tp == 1) {
      EXPECT_GT(counts.prefix_hits, 0);
    }
    return counts.preemptions;
  }
};

TEST_F(RequestLoopTest, AnswersAreThoseOfEachRequestAlone) {
  for (const int tp : {1, 2}) {
    for (const int64_t pages : {96, 14}) {  // plenty, and so few that requests are preempted
      const int64_t preemptions = many_beside_alone(11, config(pages), tp, tp == 1 ? 64 : 8);
      if (pages == 14) {
        EXPECT_GT(preemptions, 0);
      }
    }
  }
}

// BRAID_SOAK_SECONDS=300 makes it long: 64 streams at once, of other seeds each time.
TEST_F(RequestLoopTest, ManyStreamsForALongTime) {
  const char* given = std::getenv("BRAID_SOAK_SECONDS");
  const double end = steady_seconds() + (given != nullptr ? std::atof(given) : 0);
  const int requests = given != nullptr ? 256 : 80;
  uint32_t seed = 1000;
  int64_t preemptions = 0;
  do {
    for (const int64_t pages : {256, 40}) {
      SchedulerConfig c = config(pages);
      c.max_running = 64;
      c.max_step_tokens = 192;
      preemptions += many_beside_alone(++seed, c, 1, requests);
    }
  } while (steady_seconds() < end && !HasFailure());
  if (given != nullptr) {
    EXPECT_GT(preemptions, 0);
    fmt::print("{} rounds of {} requests, {} preemptions\n", seed - 1000, requests, preemptions);
  }
}

TEST_F(RequestLoopTest, TheGoldenAnswersComeOut) {
  const Golden golden = load_golden("smollm2");
  const SchedulerConfig c = config();
  const auto run = runner(c);
  RequestLoop loop(*run, loaded_->tokenizer, vocabulary(), DType::f32, c);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (const auto& test : golden.cases) {
    AnswerRequest request{
        .prompt = test.prompt, .max_tokens = 8, .sampling = {.logprobs = 0}, .ignore_eos = true};
    sinks.push_back(std::make_shared<Collector>());
    loop.submit(request, sinks.back());
  }
  for (size_t i = 0; i < golden.cases.size(); ++i) {
    EXPECT_EQ(sinks[i]->wait().reason, AnswerReason::length);
    std::vector<int32_t> ids;
    for (const SampledToken& token : sinks[i]->tokens) ids.push_back(token.id);
    const std::vector<int32_t>& greedy = golden.cases[i].greedy;
    EXPECT_EQ(ids, std::vector(greedy.begin(), greedy.begin() + 8));
  }
}

TEST_F(RequestLoopTest, AFaultOfOneRequestEndsItAlone) {
  const SchedulerConfig c = config();
  const auto run = runner(c);
  RequestLoop loop(*run, loaded_->tokenizer, vocabulary(), DType::f32, c);
  AnswerRequest good{.prompt = {1, 2, 3}, .max_tokens = 30, .ignore_eos = true};
  const Answer want = answer(loop, good);
  std::vector<uint32_t> nothing(static_cast<size_t>(ceil_div(vocabulary(), 32)));
  AnswerRequest bad = good;
  bad.mask = [&](std::span<const int32_t> generated) -> std::span<const uint32_t> {
    if (generated.size() < 3) return {};
    return nothing;
  };
  const auto first = std::make_shared<Collector>(), second = std::make_shared<Collector>(),
             third = std::make_shared<Collector>(2);
  loop.submit(bad, first);
  loop.submit(good, second);
  loop.submit(good, third);  // its sink has had enough after two pieces
  EXPECT_EQ(first->wait().reason, AnswerReason::error);
  EXPECT_THAT(first->wait().error->what(), HasSubstr(kNoTokenAllowed));
  EXPECT_EQ(second->wait().reason, AnswerReason::length);
  EXPECT_EQ(second->text, want.text);
  EXPECT_EQ(third->wait().reason, AnswerReason::abort);
  EXPECT_TRUE(want.text.starts_with(third->text));
}

TEST_F(RequestLoopTest, WhatIsWrongIsRefusedAndTheSinkHearsNothing) {
  const SchedulerConfig c = config();
  const auto run = runner(c);
  RequestLoop loop(*run, loaded_->tokenizer, vocabulary(), DType::f32, c);
  const auto refused = [&](const AnswerRequest& request) -> std::string {
    try {
      loop.submit(request, std::make_shared<Collector>());
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refused({}), HasSubstr("the prompt is empty"));
  EXPECT_THAT(refused({.prompt = {1, -1}}), HasSubstr("token id -1"));
  EXPECT_THAT(refused({.prompt = std::vector<int32_t>(3000, 1)}), HasSubstr("3000 tokens"));
  EXPECT_THAT(refused({.prompt = {1}, .sampling = {.top_p = 0}}), HasSubstr("top-p is 0"));
  EXPECT_THAT(refused({.prompt = {1}, .stop = {""}}), HasSubstr("a stop text is empty"));
  EXPECT_THAT(refused({.prompt = {1}, .sampling = {.logit_bias = {{1 << 20, 1.0f}}}}),
              HasSubstr("token id 1048576 in logit-bias"));
  EXPECT_THAT(refused({.prompt = {1}, .sampling = {.logit_bias = {{1, NAN}}}}),
              HasSubstr("logit-bias is nan"));
  EXPECT_THAT(refused({.prompt = {1}, .stop_ids = {1 << 20}}),
              HasSubstr("token id 1048576 that stops"));
  ASSERT_TRUE(loop.drain(10));
  EXPECT_THAT(refused({.prompt = {1}}), HasSubstr("it is ending"));
}

TEST_F(RequestLoopTest, BiasMinimumAndStopIdsBind) {
  const SchedulerConfig c = config();
  const auto run = runner(c);
  RequestLoop loop(*run, loaded_->tokenizer, vocabulary(), DType::f32, c);
  AnswerRequest request{
      .prompt = {4, 5, 6}, .max_tokens = 6, .sampling = {.logprobs = 0}, .ignore_eos = true};
  request.sampling.logit_bias = {{77, 100.0f}};
  const Answer biased = answer(loop, request);
  ASSERT_EQ(biased.tokens.size(), 6u);
  for (const SampledToken& token : biased.tokens) EXPECT_EQ(token.id, 77);
  request.stop_ids = {77};
  const Answer stopped = answer(loop, request);
  EXPECT_EQ(stopped.end.reason, AnswerReason::stop);
  EXPECT_EQ(stopped.end.stop_id, 77);
  EXPECT_EQ(stopped.end.answer_tokens, 1);
  request.min_tokens = 3;
  const Answer later = answer(loop, request);
  EXPECT_EQ(later.end.answer_tokens, 4);
}

TEST_F(RequestLoopTest, ALoopThatEndsTellsEveryRequest) {
  const SchedulerConfig c = config();
  const auto run = runner(c);
  std::vector<std::shared_ptr<Collector>> sinks;
  {
    RequestLoop loop(*run, loaded_->tokenizer, vocabulary(), DType::f32, c);
    for (int i = 0; i < 20; ++i) {
      sinks.push_back(std::make_shared<Collector>());
      loop.submit({.prompt = {1, 2}, .max_tokens = 1500, .ignore_eos = true}, sinks.back());
    }
  }
  for (const auto& sink : sinks) EXPECT_EQ(sink->wait().reason, AnswerReason::abort);
}

// As where a rank fails: the loop is of no more use, and says so to all.
TEST_F(RequestLoopTest, AnEngineThatFailsTellsEveryRequest) {
  const SchedulerConfig c = config();
  const auto run = runner(c);
  RequestLoop loop(*run, loaded_->tokenizer, vocabulary(), DType::f32, c);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 20; ++i) {
    AnswerRequest request{.prompt = {1, 2}, .max_tokens = 1500, .ignore_eos = true};
    if (i == 4) {
      request.on_logits = [](int64_t, std::span<const float>) {
        throw std::runtime_error("rank 1 failed");
      };
    }
    sinks.push_back(std::make_shared<Collector>());
    try {
      loop.submit(request, sinks.back());
    } catch (const Error& error) {  // it came too late
      EXPECT_EQ(error.code(), ErrorCode::kAborted);
      sinks.pop_back();
    }
  }
  EXPECT_GE(sinks.size(), 5u);
  for (const auto& sink : sinks) {
    const AnswerEnd& end = sink->wait();
    EXPECT_EQ(end.reason, AnswerReason::error);
    ASSERT_TRUE(end.error.has_value());
    EXPECT_EQ(end.error->code(), ErrorCode::kAborted);
    EXPECT_THAT(end.error->what(), HasSubstr("rank 1 failed"));
  }
  EXPECT_EQ(loop.stats().error, "rank 1 failed");
  EXPECT_EQ(loop.stats().scheduler.pages.held, 0);
  try {
    loop.submit({.prompt = {1}}, std::make_shared<Collector>());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the engine has ended: rank 1 failed"));
  }
}

TEST_F(RequestLoopTest, AllRequestsAreCancelledAtOnce) {
  const SchedulerConfig c = config();
  const auto run = runner(c);
  RequestLoop loop(*run, loaded_->tokenizer, vocabulary(), DType::f32, c);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 20; ++i) {
    sinks.push_back(std::make_shared<Collector>());
    loop.submit({.prompt = {1, 2}, .max_tokens = 1500, .ignore_eos = true}, sinks.back());
  }
  loop.cancel_all();
  for (const auto& sink : sinks) EXPECT_EQ(sink->wait().reason, AnswerReason::abort);
  EXPECT_EQ(loop.stats().scheduler.pages.held, 0);
  EXPECT_EQ(answer(loop, {.prompt = {1}, .max_tokens = 3, .ignore_eos = true}).end.reason,
            AnswerReason::length);
}

TEST_F(RequestLoopTest, ASecondTurnComputesOnlyWhatIsNew) {
  const SchedulerConfig c = config();
  const auto run = runner(c);
  RequestLoop loop(*run, loaded_->tokenizer, vocabulary(), DType::f32, c);
  AnswerRequest request{
      .prompt = std::vector<int32_t>(10 * kPageSize + 3, 9), .max_tokens = 5, .ignore_eos = true};
  EXPECT_EQ(answer(loop, request).end.cached_tokens, 0);
  request.prompt.insert(request.prompt.end(), 7, 8);
  EXPECT_EQ(answer(loop, request).end.cached_tokens, 10 * kPageSize);
  request.salt = "another";
  EXPECT_EQ(answer(loop, request).end.cached_tokens, 0);
}

}  // namespace
}  // namespace braid::golden
