// Policies on simulated clusters.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "braid/base/error.h"
#include "braid/engine/prompt_plan.h"
#include "braid/engine/trace/trace_policy.h"

namespace braid {
namespace {

TraceCluster cluster() {
  return {.config = std::string(BRAID_TEST_DATA) + "/../configs/llama-3-8b-1m.json",
          .profile = "a100",
          .machines = "1x4",
          .set = "1x4"};
}

// Level attention saves pairs, keys apart save room.
TEST(SimulatedPolicy, PoliciesDifferAsTheyShould) {
  const auto made = [&](TracePolicyKind kind) {
    return simulate_policy(cluster(), {.kind = kind, .step_tokens = 0, .keep = {0.5}});
  };
  const SimulatedPolicy sp = made(TracePolicyKind::sp), apart = made(TracePolicyKind::sp_apart),
                        levels = made(TracePolicyKind::sp_levels);
  EXPECT_EQ(sp.scheduler.groups, 4);
  EXPECT_GT(apart.scheduler.room(), 3 * sp.scheduler.room());
  const TimedRow prompt{.tokens = 65536};
  const double dense = apart.times->seconds({&prompt, 1}),
               thin = levels.times->seconds({&prompt, 1});
  EXPECT_LT(thin, 0.9 * dense);
  EXPECT_GT(thin, 0.5 * dense);
  EXPECT_NEAR(sp.times->seconds({&prompt, 1}) / dense, 1, 1e-6);
  const TimedRow decode{.tokens = 1, .cached = 200000, .decode = true};
  EXPECT_LT(apart.times->seconds({&decode, 1}), sp.times->seconds({&decode, 1}))
      << "four ranks read a fourth of the keys each";
}

// Between the probed sizes a prompt's time is what a simulation of that very prompt says.
TEST(SimulatedPolicy, PromptsBetweenTheProbesTakeTheSimulatedTime) {
  for (const auto& [tokens, cached] : {std::pair(24000, 0), std::pair(3000, 20000)}) {
    const PromptPlan plan = plan_prompt({.config = cluster().config,
                                         .profile = "a100",
                                         .machines = "1x4",
                                         .tokens = tokens,
                                         .cached = cached});
    for (const auto& [kind, division] :
         {std::pair(TracePolicyKind::chunked, PromptDivision::weights),
          std::pair(TracePolicyKind::sp, PromptDivision::tokens)}) {
      double wanted = 1e9;
      for (const PromptCandidate& c : plan.candidates) {
        if (c.ranks() == 4 && c.division == division && c.seconds > 0) {
          wanted = std::min(wanted, c.seconds);
        }
      }
      const SimulatedPolicy made =
          simulate_policy(cluster(), {.kind = kind, .step_tokens = 32768, .keep = {}});
      const TimedRow row{.tokens = tokens, .cached = cached};
      EXPECT_NEAR(made.times->seconds({&row, 1}) / wanted, 1, 0.05)
          << tokens << " behind " << cached << ", " << made.how;
    }
  }
}

// A set keeps room for a step as an engine does: arenas take three times the plan, a GiB and a half
// goes to CUDA and graphs, and keys have the rest with copies of two layers for each rank.
TEST(SimulatedPolicy, AStepLeavesRoomForKeysAsAnEngines) {
  const auto made = [&](int64_t context, int64_t step, double gb) {
    TraceCluster c = cluster();
    c.context = context;
    c.memory_gb = gb;
    return simulate_policy(c, {.kind = TracePolicyKind::sp_apart, .step_tokens = step, .keep = {}})
        .scheduler;
  };
  const int64_t token = (32 + 2 * 4) * 2 * 8 * 128 * 2;
  for (const auto& [context, gb] : {std::pair(131072, 40.0), std::pair(131072, 24.0)}) {
    const SchedulerConfig s = made(context, 0, gb);
    const PromptPlan plan = plan_prompt({.config = cluster().config,
                                         .profile = "a100",
                                         .machines = "1x4",
                                         .tokens = s.max_step_tokens});
    double step = 0;
    for (const PromptCandidate& c : plan.candidates) {
      if (c.ranks() == 4 && c.division == PromptDivision::tokens && c.steps == 1) {
        step = std::max(step, 3 * c.bytes.activations);
      }
    }
    ASSERT_GT(step, 0);
    const double spare = 1e9 * gb - 16.06e9 - 1.5 * (1 << 30) - step;
    EXPECT_NEAR(static_cast<double>(s.pages) * 64 / 4 * token / spare, 1, 0.02) << gb;
    EXPECT_EQ(s.max_context, std::min(context, static_cast<int>(s.pages * 64))) << gb;
  }
  EXPECT_EQ(made(131072, 0, 40).max_step_tokens, 131072);
  EXPECT_LT(made(131072, 0, 24).max_step_tokens, 131072);
  EXPECT_GT(made(131072, 8192, 40).pages, made(131072, 0, 40).pages);
}

// No sequence is longer than the model's positions, or than --ctx.
TEST(SimulatedPolicy, AModelsPositionsBoundASequence) {
  TraceCluster c = cluster();
  c.config = std::string(BRAID_TEST_DATA) + "/../configs/llama-3-8b.json";
  const auto context = [&](TracePolicyKind kind) {
    return simulate_policy(c, {.kind = kind, .step_tokens = 512, .keep = {}}).scheduler.max_context;
  };
  for (TracePolicyKind kind :
       {TracePolicyKind::chunked, TracePolicyKind::sp, TracePolicyKind::sp_apart}) {
    c.context = 0;
    EXPECT_EQ(context(kind), 8192);
    c.context = 4096;
    EXPECT_EQ(context(kind), 4096);
  }
}

TEST(SimulatedPolicy, RefusesByOption) {
  const auto expect = [](TraceCluster c, ErrorCode code, const std::string& text) {
    try {
      simulate_policy(c, {.kind = TracePolicyKind::sp, .keep = {}});
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  TraceCluster c = cluster();
  c.set = "1x3";
  expect(c, ErrorCode::kInvalidArgument, "--set is 1x3");
  // A set's machines lie in one rack, or fill racks.
  c.machines = "2x2x1";
  for (const char* wrong : {"4x1", "2x1x1", "3x1", "4x2x1"}) {
    c.set = wrong;
    expect(c, ErrorCode::kInvalidArgument, fmt::format("--set is {}", wrong));
  }
  c = cluster();
  c.memory_gb = 18;
  expect(c, ErrorCode::kResource, "no room for keys");
}

}  // namespace
}  // namespace braid
