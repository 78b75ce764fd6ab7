// Plans of few tokens behind keys on all ranks: queries move where a step is then faster, and
// keys where the mode hides them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "braid/backend/null/null_backend.h"
#include "braid/engine/forward_plans.h"
#include "braid/engine/mesh_choice.h"
#include "braid/model/model_shape.h"
#include "braid/parallel/attention/queries.h"
#include "braid/schedule/profile.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

constexpr int64_t kCached = 131072;
constexpr int kRanks = 4;

struct Planned {
  bool queries = false;
  double seconds = 0;
  std::string says;
};

class QueriesPlan : public testing::Test {
 protected:
  QueriesPlan()
      : shape_(read_model_shape(fmt::format("{}/../configs/llama-3-8b-1m.json", BRAID_TEST_DATA))),
        topology_(parse_topology("1x4")),
        cost_(load_profile("h100"), topology_) {
    shape_.config.layers = 2;
    shape_.config.windows.resize(2);
  }

  Planned plan(int64_t tokens, int64_t cached, bool priced,
               const std::optional<KeyLevels>& levels = {}) const {
    const int64_t pages = (kCached + 65536) / 64;
    const CacheShape cache{.pages = pages / kRanks,
                           .page_size = 64,
                           .pages_per_sequence = pages,
                           .kv_dtype = DType::bf16,
                           .activations = DType::bf16};
    const NullBackend backend;
    const ForwardPlanner planner([&](const ForwardShape& s) { return shape_.forward(s); }, cache,
                                 std::vector(kRanks, &backend.catalog()), topology_,
                                 sequence_mesh(SpMode::ring, topology_, shape_.config.Hq), {},
                                 levels);
    const SequenceLayout q = even_zigzag_layout(tokens, kRanks, cached);
    SequenceLayout kv = even_zigzag_layout(cached, kRanks);
    for (size_t r = 0; r < kRanks; ++r) {
      kv.ranks[r].insert(kv.ranks[r].end(), q.ranks[r].begin(), q.ranks[r].end());
    }
    const PlannedForward made =
        planner.plan_tokens(*find_strategy("sequence_parallel"), q, kv,
                            key_for_tokens(q, kv, 1).micro_batches[0], priced ? &cost_ : nullptr);
    return {moves_queries(made.programs[0]), prompt_seconds(made, tokens, cached, cost_),
            explain_moves(made.lowered[0].program, {planner.mesh(), q, kv})};
  }

  ModelShape shape_;
  const Topology topology_;
  const CostModel cost_;
};

TEST_F(QueriesPlan, TakesTheFasterOfBoth) {
  const Planned few = plan(256, kCached, true);
  EXPECT_TRUE(few.queries);
  EXPECT_EQ(few.says, "queries move: 19.1 MB an attention as queries, 1613.8 as keys");
  // By bytes alone queries would move, but a ring hides keys under so much attention.
  const Planned bytes = plan(8192, kCached, false), time = plan(8192, kCached, true);
  EXPECT_TRUE(bytes.queries);
  EXPECT_FALSE(time.queries);
  EXPECT_LT(time.seconds, bytes.seconds);
  EXPECT_EQ(time.says, "keys move: 610.3 MB an attention as queries, 1711.3 as keys");
}

TEST_F(QueriesPlan, NotWithoutEarlierKeysNorWithLevels) {
  const Planned first = plan(4096, 0, false);
  EXPECT_FALSE(first.queries);
  EXPECT_EQ(first.says, "");
  EXPECT_FALSE(plan(256, kCached, false, key_levels({0.5}, {}, kRanks)).queries);
}

}  // namespace
}  // namespace braid
