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

// Whether an attention of a prompt over 4 ranks waits inside, with kernels that can.
bool waits_inside(const char* machines, const std::optional<KeyLevels>& levels) {
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
  const PlannedForward plan = planner.plan_tokens(
      *strategy, tokens, tokens, key_for_tokens(tokens, tokens, 1).micro_batches[0]);
  for (const Program& program : plan.programs) {
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

}  // namespace
}  // namespace braid
