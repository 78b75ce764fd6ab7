// An engine's steps by a profile's prices, planned by the engine's own planner.
#include "braid/engine/trace/planned_times.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <numeric>

#include "braid/engine/absent_gpu.h"
#include "braid/engine/step_plans.h"
#include "braid/engine/trace/trace_policy.h"
#include "braid/model/model_shape.h"

namespace braid {
namespace {

const std::string kConfig = std::string(BRAID_TEST_DATA) + "/../configs/llama-3-8b-1m.json";
constexpr int64_t kPages = 8192;  // in all

// Llama-3-8B's shape on CPU ranks with a GPU's prices.
class PlannedTimesTest : public ::testing::Test {
 protected:
  static RunnerConfig ranks(int tp, bool sequence) {
    RunnerConfig config{.tp = tp,
                        .cache = {.pages = kPages,
                                  .page_size = kPageSize,
                                  .pages_per_sequence = kPages,
                                  .kv_dtype = DType::bf16},
                        .profile = load_profile("a100")};
    if (sequence) config.sp = SequenceParallel{.mode = SpMode::ring};
    if (sequence) config.schedule = "sequence_parallel";
    return config;
  }
  static RunnerConfig gpus(int tp, bool sequence) {
    RunnerConfig config = ranks(tp, sequence);
    config.profile = load_profile("h200");
    config.device.cuda = true;
    if (!sequence) config.schedule = "auto";
    config.cache.activations = DType::bf16;
    return config;
  }
  static SchedulerConfig limits() {
    return {.pages = kPages, .page_size = kPageSize, .max_context = kPages * kPageSize};
  }
  // A sequence's pages.
  std::span<const int32_t> pages(int64_t tokens) {
    std::vector<int32_t>& made =
        pages_.emplace_back(static_cast<size_t>(ceil_div(tokens, kPageSize)));
    std::iota(made.begin(), made.end(), next_);
    next_ += static_cast<int32_t>(made.size());
    return made;
  }

  // Of steps whose plan is there; others on the cores may delay the planner. Answers go on.
  static double again(PlannedTimes& times, std::vector<TimedRow>& rows) {
    double least = 1e9;
    for (int i = 0; i < 4; ++i) {
      const double seconds = times.seconds(rows);
      if (i > 0) least = std::min(least, seconds);
      for (TimedRow& row : rows) row.cached += row.decode ? 1 : 0;
    }
    return least;
  }

  const Model model_{read_model_shape(kConfig), 1};
  std::list<std::vector<int32_t>> pages_;
  int32_t next_ = 0;
};

// The same step by the other road, which plans without an engine and interpolates.
TEST_F(PlannedTimesTest, TakeTheSimulatedTimeOfAStep) {
  for (int tp : {1, 2}) {
    const std::string machines = fmt::format("1x{}", tp);
    const SimulatedPolicy policy = simulate_policy(
        {.config = kConfig, .profile = "a100", .machines = machines, .set = machines},
        {.kind = TracePolicyKind::chunked, .step_tokens = 4096, .keep = {}});
    PlannedTimes times(model_, ranks(tp, false), limits());
    std::vector<std::vector<TimedRow>> steps = {
        {{.tokens = 1, .cached = 511, .decode = true, .pages = pages(520)}},
        {{.tokens = 1, .cached = 40000, .decode = true, .pages = pages(40020)},
         {.tokens = 1, .cached = 9000, .decode = true, .pages = pages(9020)}}};
    // CPU ranks send sums in f32, the policy's GPUs in bf16.
    if (tp == 1) steps.push_back({{.tokens = 4096, .pages = pages(4096)}});
    for (auto& rows : steps) {
      const double wanted = policy.times->seconds(rows);
      EXPECT_NEAR(again(times, rows) / wanted, 1, 0.1)
          << tp << " ranks, " << rows[0].tokens << " tokens behind " << rows[0].cached;
    }
  }
}

// Ranks keep the keys that they computed, so a token behind a divided prompt reads a half on each.
TEST_F(PlannedTimesTest, FollowKeysToTheirRanks) {
  PlannedTimes one(model_, ranks(1, false), limits()), two(model_, ranks(2, true), limits());
  const auto list = pages(200020);
  std::vector<TimedRow> prompt = {{.tokens = 200000, .group = -1, .pages = list}};
  EXPECT_NEAR(again(one, prompt) / again(two, prompt), 2, 0.1);
  const auto token = [&](int64_t cached, int group, std::span<const int32_t> pages) {
    return TimedRow{.tokens = 1, .cached = cached, .group = group, .decode = true, .pages = pages};
  };
  std::vector<TimedRow> lone = {token(200000, -1, list)}, divided = lone;
  const double alone = again(one, lone), apart = again(two, divided);
  std::vector<TimedRow> none = {token(0, -1, pages(10))};
  const double keys = alone - again(one, none);
  EXPECT_GT(keys, 0.5 * alone) << "keys count";
  EXPECT_NEAR((alone - apart) / keys, 0.5, 0.1);

  // A sequence of rank 1's own, and the divided one beside it: the fullest rank counts.
  const auto short_list = pages(420);
  const TimedRow own_prompt{.tokens = 400, .group = 1, .pages = short_list};
  two.seconds({&own_prompt, 1});
  std::vector<TimedRow> own = {token(400, 1, short_list)};
  EXPECT_LT(again(two, own), 0.9 * apart);
  std::vector<TimedRow> both = {divided[0], own[0]};
  EXPECT_GT(again(two, both), apart);
}

// GPUs that plan ahead have plans of a few sizes, 64 to 512 tokens here.
TEST_F(PlannedTimesTest, GpusComputeAllRowsOfAPlan) {
  const RunnerConfig config = gpus(2, false);
  if (!kernels_of_absent_gpu(*config.profile)) GTEST_SKIP() << "this build has no CUDA";
  SchedulerConfig bounds = limits();
  bounds.max_step_tokens = 512;
  PlannedTimes times(model_, config, bounds, kernels_of_absent_gpu(*config.profile));
  const auto chunk = [&](int64_t tokens) {
    const TimedRow row{.tokens = tokens, .pages = pages(tokens)};
    const double seconds = times.seconds({&row, 1});
    EXPECT_EQ(times.planning(), 0);
    return seconds;
  };
  EXPECT_NEAR(chunk(260) / chunk(320), 1, 0.01);
  EXPECT_GT(chunk(322), 1.05 * chunk(320));
  const TimedRow answer{.tokens = 1, .cached = 500, .decode = true, .pages = pages(501)};
  EXPECT_LT(times.seconds({&answer, 1}), chunk(64));
}

// An answer alone is a relay, several are launches with seams between them, as `braid plan` says.
TEST_F(PlannedTimesTest, AnswersHaveTheFormThatAGpuTakes) {
  for (int tp : {1, 2}) {
    const RunnerConfig config = gpus(tp, false);
    if (!kernels_of_absent_gpu(*config.profile)) GTEST_SKIP() << "this build has no CUDA";
    SchedulerConfig bounds = limits();
    bounds.max_step_tokens = 512;
    PlannedTimes times(model_, config, bounds, kernels_of_absent_gpu(*config.profile));
    const auto answers = [&](int64_t n) {
      const std::vector<TimedRow> rows(
          n, {.tokens = 1, .cached = 2000, .decode = true, .pages = pages(2001)});
      return times.seconds(rows);
    };
    for (int64_t n : {1, 2, 8}) {
      const StepPlans plan({.config = kConfig,
                            .tokens = 0,
                            .decodes = n,
                            .depth = 2000,
                            .tp = tp,
                            .decode = "auto",
                            .compare = false});
      EXPECT_NEAR(answers(n) / plan.chosen().step.seconds, 1, 0.05) << n << " over " << tp;
    }
    EXPECT_GT(answers(2), 1.1 * answers(1)) << "no relay";
  }
}

// With levels only a thinned prompt waits for a plan: other steps take as long as without.
TEST_F(PlannedTimesTest, ThinnedPromptsAloneWaitForPlans) {
  RunnerConfig config = gpus(2, false);
  if (!kernels_of_absent_gpu(*config.profile)) GTEST_SKIP() << "this build has no CUDA";
  SchedulerConfig bounds = limits();
  bounds.max_step_tokens = 512;
  PlannedTimes all(model_, config, bounds, kernels_of_absent_gpu(*config.profile));
  config.thinning = {.keep = {0.5}};
  bounds.max_step_tokens = 4096;
  bounds.shared_tokens = 512;
  PlannedTimes fewer(model_, config, bounds, kernels_of_absent_gpu(*config.profile));
  const auto list = pages(4000);
  const TimedRow answer{
      .tokens = 1, .cached = 500, .decode = true, .approximate = true, .pages = list};
  const TimedRow exact{.tokens = 300, .pages = list};
  for (const TimedRow& row : {answer, exact}) {
    const double seconds = fewer.seconds({&row, 1});
    EXPECT_EQ(fewer.planning(), 0) << row.tokens << " tokens";
    EXPECT_EQ(seconds, all.seconds({&row, 1})) << row.tokens << " tokens";
  }
  const TimedRow prompt{.tokens = 4000, .approximate = true, .pages = list};
  EXPECT_GT(fewer.seconds({&prompt, 1}), fewer.planning());
  EXPECT_GT(fewer.planning(), 32 * 5 * 37e-6) << "launches of 32 layers";
}

// A step waits for its plan to be made and, on a GPU, to be bound launch by launch.
TEST_F(PlannedTimesTest, NewPlansAreBound) {
  const RunnerConfig config = gpus(2, true);
  if (!kernels_of_absent_gpu(*config.profile)) GTEST_SKIP() << "this build has no CUDA";
  PlannedTimes times(model_, config, limits(), kernels_of_absent_gpu(*config.profile));
  const auto list = pages(4000);
  const TimedRow prompt{.tokens = 4000, .group = -1, .pages = list};
  const double first = times.seconds({&prompt, 1});
  EXPECT_GT(times.planning(), 32 * 5 * 37e-6) << "launches of 32 layers";
  EXPECT_LT(times.planning(), first);
  EXPECT_LT(times.seconds({&prompt, 1}), first);
  EXPECT_LT(times.planning(), 32 * 5 * 37e-6) << "the plan is there";
}

}  // namespace
}  // namespace braid
