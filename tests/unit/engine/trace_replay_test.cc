// Replays of traces by the scheduler without a model.
#include "braid/engine/trace/trace_replay.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "braid/engine/trace/simulated_times.h"
#include "braid/engine/trace/trace_summary.h"
#include "braid/io/trace_loads.h"
#include "braid/schedule/micro_batch.h"

namespace braid {
namespace {

TraceSource source_of(std::vector<TraceRequest> requests) {
  return [requests = std::move(requests), i = size_t{0}](TraceRequest& r) mutable {
    if (i == requests.size()) return false;
    r = requests[i++];
    return true;
  };
}

// A second for each step, and a hundredth for each token.
class RoundTimes final : public StepTimes {
 public:
  double seconds(std::span<const TimedRow> rows) override {
    double tokens = 0;
    for (const TimedRow& row : rows) tokens += static_cast<double>(row.tokens);
    return 1 + 0.01 * tokens;
  }
};

SchedulerConfig small() {
  return {.pages = 64,
          .page_size = 16,
          .max_context = 1024,
          .max_running = 8,
          .max_step_tokens = 128,
          .max_waiting = 1000};
}

// Worked out by hand, in steps of 128 tokens:
//   0    step 1, the first 128 tokens of A: 2.28 s
//   2.28 step 2, the other 72 of A, and all 40 of B, which came at 1: 2.12 s
//   4.40 step 3, A and B decode: 1.02 s. B is done, with 2 tokens
//   5.42 step 4, A decodes: 1.01 s. A is done, with 3 tokens
//   10   C comes to a machine at rest: 1.16 s, one token
TEST(TraceReplay, ThreeRequestsByHand) {
  RoundTimes times;
  const ReplayConfig config{.scheduler = small(), .long_tokens = 100};
  const TraceReplay r = replay_trace(source_of({{.arrival = 0, .input = 200, .output = 3},
                                                {.arrival = 1, .input = 40, .output = 2},
                                                {.arrival = 10, .input = 16, .output = 1}}),
                                     config, times);
  ASSERT_EQ(r.requests.size(), 3u);
  EXPECT_NEAR(r.requests[0].first, 4.40, 1e-9);
  EXPECT_NEAR(r.requests[0].last, 6.43, 1e-9);
  EXPECT_NEAR(r.requests[1].first, 4.40, 1e-9);
  EXPECT_NEAR(r.requests[1].last, 5.42, 1e-9);
  EXPECT_NEAR(r.requests[2].first, 11.16, 1e-9);
  EXPECT_NEAR(r.requests[2].last, 11.16, 1e-9);
  EXPECT_EQ(r.steps, 5);
  EXPECT_EQ(r.prompt_tokens, 256);
  EXPECT_NEAR(r.busy, 2.28 + 2.12 + 1.02 + 1.01 + 1.16, 1e-9);
  EXPECT_NEAR(r.seconds, 11.16, 1e-9);
  ASSERT_EQ(r.gaps.size(), 3u);

  const TraceSummary s = summarize(r, config, {.first = 4, .gap = 1.016});
  EXPECT_EQ(s.all.requests, 3);
  EXPECT_NEAR(s.all.first.mean, (4.40 + 3.40 + 1.16) / 3, 1e-9);
  EXPECT_NEAR(s.all.first.p50, 3.40, 1e-9);
  EXPECT_NEAR(s.all.first.p99, 4.40, 1e-9);
  EXPECT_EQ(s.long_ones.requests, 1);
  EXPECT_NEAR(s.long_ones.gap.mean, (1.02 + 1.01) / 2, 1e-6);
  EXPECT_NEAR(s.brief.gap.p50, 1.02, 1e-6);
  EXPECT_NEAR(s.kept, 1.0 / 3, 1e-9) << "A is late, B's tokens are";
  EXPECT_NEAR(s.all.prefill_rate, (200 / 4.40 + 40 / 3.40 + 16 / 1.16) / 3, 1e-9);
  EXPECT_NEAR(s.all.decode_rate, (2 / (6.43 - 4.40) + 1 / (5.42 - 4.40)) / 2, 1e-9);
  EXPECT_NEAR(s.prefill_rate, 256 / 11.16, 1e-9);
  EXPECT_NEAR(s.decode_rate, 6 / 11.16, 1e-9);
}

// The same with two steps under way: each is chosen as the one before begins.
//   0    step 1, 128 tokens of A: 2.28 s; step 2, the other 72 of A, from 2.28: 1.72 s
//   2.28 step 3, A's next token and B, from 4.00: 1.41 s
//   4.00 step 4, A and B decode, from 5.41: 1.02 s
TEST(TraceReplay, TwoStepsUnderWayByHand) {
  RoundTimes times;
  const ReplayConfig config{.scheduler = small(), .depth = 2};
  const TraceReplay r = replay_trace(source_of({{.arrival = 0, .input = 200, .output = 3},
                                                {.arrival = 1, .input = 40, .output = 2},
                                                {.arrival = 10, .input = 16, .output = 1}}),
                                     config, times);
  EXPECT_NEAR(r.requests[0].first, 4.00, 1e-9);
  EXPECT_NEAR(r.requests[0].last, 6.43, 1e-9);
  EXPECT_NEAR(r.requests[1].first, 5.41, 1e-9);
  EXPECT_NEAR(r.requests[1].last, 6.43, 1e-9);
  EXPECT_NEAR(r.requests[2].last, 11.16, 1e-9);
  EXPECT_EQ(r.steps, 5);
  EXPECT_EQ(r.prompt_tokens, 256);
}

// The host's time comes before each step, and sums of steps do not have it.
TEST(TraceReplay, TimeOfTheHostBetweenStepsByHand) {
  RoundTimes times;
  const ReplayConfig config{.scheduler = small(), .between = 0.125};
  const TraceReplay r =
      replay_trace(source_of({{.arrival = 0, .input = 200, .output = 3}}), config, times);
  EXPECT_NEAR(r.requests[0].first, 0.125 + 2.28 + 0.125 + 1.72, 1e-9);
  EXPECT_NEAR(r.requests[0].last, 4.25 + 2 * (0.125 + 1.01), 1e-9);
  EXPECT_EQ(r.sums.prompts.steps, 2);
  EXPECT_EQ(r.sums.prompts.tokens, 200);
  EXPECT_NEAR(r.sums.prompts.seconds, 4, 1e-9);
  EXPECT_EQ(r.sums.answers.steps, 2);
  EXPECT_NEAR(r.sums.answers.seconds, 2.02, 1e-9);
}

// The same with prompts alone: prompts and answers take turns.
TEST(TraceReplay, PromptsAloneByHand) {
  RoundTimes times;
  ReplayConfig config{.scheduler = small()};
  config.scheduler.prompts_alone = true;
  config.scheduler.max_step_tokens = 512;
  const TraceReplay r = replay_trace(source_of({{.arrival = 0, .input = 200, .output = 3},
                                                {.arrival = 1, .input = 40, .output = 2}}),
                                     config, times);
  EXPECT_NEAR(r.requests[0].first, 3.00, 1e-9);
  EXPECT_NEAR(r.requests[0].last, 3.00 + 1.01 + 1.40 + 1.02, 1e-9) << "its token, B, both";
  EXPECT_NEAR(r.requests[1].first, 3.00 + 1.01 + 1.40, 1e-9);
}

// Each token once and none before its request, whatever the load: sets, preemptions, shared blocks.
TEST(TraceReplay, ConservesTokens) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 30; ++trial) {
    std::vector<TraceRequest> requests;
    double now = 0;
    for (int i = 0; i < 60; ++i) {
      now += static_cast<double>(random() % 100) / 20;
      TraceRequest r{.arrival = now,
                     .input = 1 + static_cast<int64_t>(random() % 900),
                     .output = 1 + static_cast<int64_t>(random() % 60)};
      if (random() % 2 == 0) {
        for (int64_t b = 0; b * kTraceBlock < r.input; ++b) {
          r.blocks.push_back(b * 4 + static_cast<int64_t>(random() % 2));
        }
      }
      requests.push_back(std::move(r));
    }
    ReplayConfig config{.scheduler = small(), .sets = 1 + trial % 3};
    config.scheduler.prompts_alone = trial % 2 == 0;
    config.depth = 1 + static_cast<size_t>(trial / 2 % 2);
    config.scheduler.pages = trial % 5 == 0 ? 64 : 200;
    std::map<RequestId, int64_t> sampled;
    config.on_step = [&](double, const Step& step) {
      for (const StepRow& row : step.rows) sampled[row.id] += row.sample ? 1 : 0;
    };
    RoundTimes times;
    const TraceReplay r = replay_trace(source_of(requests), config, times);
    ASSERT_EQ(r.requests.size(), requests.size());
    int64_t gaps = 0, computed = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const ReplayedRequest& made = r.requests[i];
      ASSERT_FALSE(made.refused);
      EXPECT_EQ(made.output, requests[i].output);
      EXPECT_EQ(sampled[i + 1], made.output);
      EXPECT_GT(made.first, requests[i].arrival);
      EXPECT_GE(made.last, made.first);
      EXPECT_LT(made.cached, made.input);
      gaps += made.output - 1;
      computed += made.input - made.cached;
    }
    EXPECT_EQ(std::ssize(r.gaps), gaps);
    // What a preemption throws away is computed again; what others computed since is not.
    if (r.preemptions == 0) {
      EXPECT_LE(r.prompt_tokens, computed);
    }
    RoundTimes fresh;
    const TraceReplay again = replay_trace(source_of(requests), config, fresh);
    EXPECT_EQ(again.seconds, r.seconds) << "deterministic";
    EXPECT_EQ(again.steps, r.steps);
  }
}

TEST(TraceReplay, WhatCanNeverFitIsRefusedAndTheRestGoesOn) {
  RoundTimes times;
  const ReplayConfig config{.scheduler = small()};
  const TraceReplay r = replay_trace(source_of({{.arrival = 0, .input = 5000, .output = 3},
                                                {.arrival = 0, .input = 1000, .output = 300}}),
                                     config, times);
  EXPECT_TRUE(r.requests[0].refused);
  EXPECT_EQ(r.requests[1].output, 24) << "the context ends there";
  EXPECT_EQ(summarize(r, config, {}).refused, 1);
}

TEST(TraceReplay, EqualBlocksAreEqualTokens) {
  const TraceRequest a{.input = 1000, .blocks = {5, 6}}, b{.input = 600, .blocks = {5, 9}};
  const std::vector<int32_t> x = prompt_ids(a, 1 << 30), y = prompt_ids(b, 1 << 30);
  EXPECT_TRUE(std::equal(x.begin(), x.begin() + kTraceBlock, y.begin()));
  EXPECT_NE(x[600 - 1], y[600 - 1]);
}

// A law that is linear in what the interpolation takes as linear: all steps come out exactly.
TEST(SimulatedTimes, AreTheLawThatWasProbed) {
  const auto pairs = [](double n) { return n * (n + 1) / 2; };
  int probes = 0;
  StepProbes law;
  law.prompt = [&](int64_t n, int64_t cached) {
    ++probes;
    return 1e-3 + 2e-6 * static_cast<double>(n) +
           1e-9 * (static_cast<double>(n * cached) + pairs(static_cast<double>(n)));
  };
  law.thinned = [&](int64_t n) {
    return 1e-3 + 2e-6 * static_cast<double>(n) + 0.6e-9 * pairs(static_cast<double>(n));
  };
  law.decode = [](int64_t n, int64_t keys) {
    return 5e-4 + 1e-5 * static_cast<double>(n) + 3e-9 * static_cast<double>(n * keys);
  };
  SimulatedTimes together(law, 1);
  const auto rows = [](std::vector<TimedRow> r) { return r; };
  EXPECT_NEAR(together.seconds(rows({{.tokens = 3000, .cached = 700}})),
              1e-3 + 6e-3 + 1e-9 * 3000 * 700 + 0.6e-9 * pairs(3000), 1e-9);
  EXPECT_NEAR(together.seconds(rows({{.tokens = 1, .cached = 999, .decode = true},
                                     {.tokens = 1, .cached = 1999, .group = 1, .decode = true},
                                     {.tokens = 1, .cached = 2999, .decode = true}})),
              5e-4 + 3e-5 + 3e-9 * 6000, 1e-9);
  EXPECT_NEAR(together.seconds(rows(
                  {{.tokens = 256, .cached = 0}, {.tokens = 1, .cached = 999, .decode = true}})),
              1e-3 + 2e-6 * 257 + 0.6e-9 * pairs(256) + 3e-9 * 1000, 1e-9);
  const int before = probes;
  together.seconds(rows({{.tokens = 2500, .cached = 9}}));
  EXPECT_EQ(probes, before) << "probes are kept";
  SimulatedTimes apart(law, 2);
  EXPECT_NEAR(apart.seconds(rows({{.tokens = 1, .cached = 999, .decode = true},
                                  {.tokens = 1, .cached = 1999, .group = 1, .decode = true}})),
              5e-4 + 1e-5 + 3e-9 * 2000, 1e-9)
      << "the slower rank counts";
}

// A GPU: weights are read or multiplied, a prompt's tokens share the keys, and a token of an answer
// reads each of its keys alone, at 30 times the price. Two fits see every step: the trace's, and
// the scheduler's, in which all keys have one price and the latest steps count most.
class GpuTimes final : public StepTimes {
 public:
  double seconds(std::span<const TimedRow> rows) override {
    int64_t tokens = 0, keys = 0, own = 0;
    for (const TimedRow& row : rows) {
      tokens += row.tokens;
      (row.decode ? own : keys) += attended_keys(row.cached, row.tokens);
    }
    const double s = 3e-4 + std::max(8e-4, 4.5e-6 * static_cast<double>(tokens)) +
                     4e-10 * static_cast<double>(keys) + 1.1e-8 * static_cast<double>(own);
    fitted.add(rows, s);
    latest.add(tokens, keys + own, 1e3 * s);
    return s;
  }
  FittedTimes fitted;
  StepCostFit latest;
};

class LatestTimes final : public StepTimes {
 public:
  explicit LatestTimes(const StepCost& cost) : cost_(cost) {}
  double seconds(std::span<const TimedRow> rows) override {
    int64_t tokens = 0, keys = 0;
    for (const TimedRow& row : rows) {
      tokens += row.tokens;
      keys += attended_keys(row.cached, row.tokens);
    }
    return 1e-3 * cost_.of(tokens, keys);
  }

 private:
  const StepCost cost_;
};

TEST(FittedTimes, RepeatTheLoadOfAGpu) {
  const ReplayConfig config{.scheduler = {.pages = 20000,
                                          .page_size = 64,
                                          .max_context = 66000,
                                          .max_running = 32,
                                          .max_step_tokens = 512},
                            .depth = 2};
  const auto times_with = [&](StepTimes& times) {
    TraceScale scale;
    scale.lengths = 0.5;
    const TraceSource load =
        scaled(generated_trace({.mix = "conversation", .rate = 6, .requests = 80}), scale);
    return summarize(replay_trace(load, config, times), config, {}).all;
  };
  GpuTimes gpu;
  const TraceTimes real = times_with(gpu), again = times_with(gpu.fitted);
  EXPECT_NEAR(again.first.mean / real.first.mean, 1, 0.05);
  EXPECT_NEAR(again.whole.mean / real.whole.mean, 1, 0.05);
  LatestTimes latest(gpu.latest.cost());
  EXPECT_GT(std::abs(times_with(latest).first.mean / real.first.mean - 1), 0.15);
}

// Steps of a kind that never ran cost what the other kind's do.
TEST(FittedTimes, KnowEitherKindOfSteps) {
  FittedTimes times;
  const TimedRow prompt{.tokens = 100}, answer{.tokens = 1, .cached = 50, .decode = true};
  times.add({&prompt, 1}, 0.5);
  EXPECT_NEAR(times.seconds({&prompt, 1}), 0.5, 1e-6);
  EXPECT_GT(times.seconds({&answer, 1}), 0);
  times.add({&answer, 1}, 0.25);
  EXPECT_NEAR(times.seconds({&answer, 1}), 0.25, 1e-6);
  times.clear();
  times.add({&answer, 1}, 0.5);
  EXPECT_NEAR(times.seconds({&answer, 1}), 0.5, 1e-6);
}

}  // namespace
}  // namespace braid
