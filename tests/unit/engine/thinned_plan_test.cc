// Plans of prompts with thinned keys (KeyLevels): where their attention waits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "any_phases.h"
#include "braid/backend/null/null_backend.h"
#include "braid/engine/forward_plans.h"
#include "braid/model/model_shape.h"
#include "braid/ops/segment_attention.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

// A prompt over 4 ranks, with kernels that can wait inside.
PlannedForward planned(const char* machines, const std::optional<KeyLevels>& levels) {
  ModelShape shape =
      read_model_shape(fmt::format("{}/../configs/llama-3-8b.json", BRAID_TEST_DATA));
  shape.config.layers = 3;
  shape.config.windows.resize(3);
  const CacheShape cache{.pages = 16,
                         .page_size = 64,
                         .pages_per_sequence = 16,
                         .kv_dtype = DType::bf16,
                         .activations = DType::bf16};
  const NullBackend backend(&any_phases);
  const Topology topology = parse_topology(machines);
  const ForwardPlanner planner([&](const ForwardShape& s) { return shape.forward(s); }, cache,
                               std::vector(4, &backend.catalog()), topology,
                               sequence_mesh(SpMode::ring, topology, shape.config.Hq), {}, levels);
  const SequenceLayout tokens = even_zigzag_layout(1024, 4);
  const auto strategy = find_strategy("sequence_parallel");
  return planner.plan_tokens(*strategy, tokens, tokens,
                             key_for_tokens(tokens, tokens, 1).micro_batches[0]);
}

// Whether an attention waits inside.
bool waits_inside(const char* machines, const std::optional<KeyLevels>& levels) {
  for (const Program& program : planned(machines, levels).programs) {
    for (const Op& op : program.ops) {
      if (op.def != &ops::kSegmentAttention) continue;
      if (op.attrs.as<ops::SegmentAttentionAttrs>().last_phase() > 0) return true;
    }
  }
  return false;
}

// A kernel that waited inside for dense keys, beside thinned keys, kept their last copy out of host
// memory from ending.
TEST(ThinnedPlan, WaitsBetweenCallsForKeysOfOtherMachines) {
  const KeyLevels half = key_levels({0.5}, {}, 4);
  EXPECT_TRUE(waits_inside("1x4", half));
  EXPECT_FALSE(waits_inside("2x2", half));
  EXPECT_FALSE(waits_inside("4x1", half));
  EXPECT_TRUE(waits_inside("2x2", std::nullopt));
}

// Thinned keys come from other machines while queries see their own rank's. On one machine, where
// keys come faster than a state goes through memory, a call takes all.
TEST(ThinnedPlan, TransfersBetweenMachinesRunBesideOwnKeys) {
  for (const char* machines : {"1x4", "2x2", "4x1"}) {
    const PlannedForward plan = planned(machines, key_levels({0.5}, {}, 4));
    for (size_t r = 0; r < plan.programs.size(); ++r) {
      int own = 0, pulled = 0, all = 0;
      for (const Launch& launch : plan.schedules[r].launches) {
        const Op& op = plan.schedules[r].op(plan.programs[r], launch);
        if (op.def != &ops::kSegmentAttention || !op.scope.starts_with("layers.1.")) continue;
        const auto& attrs = op.attrs.as<ops::SegmentAttentionAttrs>();
        own += !attrs.finalize && !attrs.load_state && launch.beside.pulls;
        pulled += attrs.finalize && attrs.load_state && !launch.beside.pulls;
        all += attrs.finalize && !attrs.load_state && !launch.beside.pulls;
      }
      const bool one = parse_topology(machines).machines == 1;
      EXPECT_EQ(own, one ? 0 : 1) << machines << ", rank " << r;
      EXPECT_EQ(pulled, one ? 0 : 1) << machines << ", rank " << r;
      EXPECT_EQ(all, one ? 1 : 0) << machines << ", rank " << r;
    }
  }
}

}  // namespace
}  // namespace braid
