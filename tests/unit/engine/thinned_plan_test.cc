// Plans of prompts with thinned keys (KeyLevels): where their attention waits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "any_phases.h"
#include "braid/backend/null/null_backend.h"
#include "braid/engine/absent_gpu.h"
#include "braid/engine/forward_plans.h"
#include "braid/model/model_shape.h"
#include "braid/ops/attention.h"
#include "braid/ops/segment_attention.h"
#include "braid/parallel/attention/logical_attention.h"
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

// Plans of a prompt on ranks that divide weights, or on one rank.
class LocalPlans {
 public:
  explicit LocalPlans(int ranks, const KernelCatalog* kernels = nullptr)
      : kernels_(kernels != nullptr ? kernels : &backend_.catalog()), topology_{.devices = ranks} {
    shape_ = read_model_shape(fmt::format("{}/../configs/llama-3-8b.json", BRAID_TEST_DATA));
    shape_.config.layers = 4;
    shape_.config.windows.resize(4);
  }
  PlannedForward plan(int64_t tokens, int64_t cached, const std::optional<KeyLevels>& levels,
                      bool divides_rows = false) const {
    const CacheShape cache{.pages = 16,
                           .page_size = 64,
                           .pages_per_sequence = 16,
                           .kv_dtype = DType::bf16,
                           .activations = DType::bf16};
    const ForwardPlanner planner([&](const ForwardShape& s) { return shape_.forward(s); }, cache,
                                 std::vector(topology_.devices, kernels_), topology_, {}, {},
                                 levels);
    ContextKey key =
        key_for_tokens(even_layout(tokens, 1, cached), even_layout(cached + tokens, 1), 1);
    key.kind = ContextKey::Kind::ranks;
    Extents& capacity = key.micro_batches[0].capacity;
    capacity.shard = ceil_div(capacity.token, int64_t{topology_.devices});
    return planner.plan(*find_strategy("sequential"), {.token_sharded_residual = divides_rows},
                        key);
  }

 private:
  const NullBackend backend_;
  const KernelCatalog* const kernels_;
  const Topology topology_;
  ModelShape shape_;
};

std::map<std::string, int> kinds(const Program& program) {
  std::map<std::string, int> counts;
  for (const Op& op : program.ops) ++counts[std::string(op.def->kind)];
  return counts;
}

// Ranks that have all tokens thin the keys of their own heads: the middle layers' attention, with
// exactly the closed form's pairs on each rank, and no other op or transfer than without levels.
TEST(ThinnedPlan, RanksWithAllTokensThinTheirOwnHeads) {
  const KeyLevels levels = key_levels({0.5, 0.25}, {2, 8}, 8);
  for (int ranks : {1, 2, 4, 8}) {
    for (int64_t cached : {0, 70}) {
      for (bool divides_rows : {false, true}) {
        SCOPED_TRACE(fmt::format("{} ranks, {} cached, {}", ranks, cached, divides_rows));
        constexpr int64_t kTokens = 520;
        const LocalPlans plans(ranks);
        const PlannedForward dense = plans.plan(kTokens, cached, {}, divides_rows);
        const PlannedForward thinned = plans.plan(kTokens, cached, levels, divides_rows);
        for (size_t r = 0; r < thinned.programs.size(); ++r) {
          double pairs = 0;
          for (const Op& op : thinned.programs[r].ops) {
            if (op.def != &ops::kSegmentAttention) continue;
            const auto& attrs = op.attrs.as<ops::SegmentAttentionAttrs>();
            EXPECT_EQ(attrs.heads, 32 / ranks);
            EXPECT_LE(std::ssize(attrs.kv), ops::kMostSegments);
            for (double phase : attrs.pairs()) pairs += phase;
          }
          const double all = kTokens * (kTokens + 1) / 2;
          const double kept = kept_pairs(levels, even_layout(kTokens, 1, cached)) * all;
          EXPECT_NEAR(pairs, 2 * (kept + static_cast<double>(kTokens * cached)), 1e-6);
          auto want = kinds(dense.lowered[r].program), got = kinds(thinned.lowered[r].program);
          EXPECT_EQ(want["attention"], 4);
          EXPECT_EQ(got["attention"], 2);
          EXPECT_EQ(got["thin_keys"], 2);
          for (const char* kind : {"attention", "join_sequence", "kv_read", "thin_keys",
                                   "segment_attention", "cut_sequence", "buffers"}) {
            want.erase(kind), got.erase(kind);
          }
          EXPECT_EQ(got, want);
        }
      }
    }
  }
}

// The kernels of GPUs take every op of a thinned prompt.
TEST(ThinnedPlan, GpusHaveKernelsForAPromptOfOneRank) {
  for (const char* name : {"h200", "a100"}) {
    SCOPED_TRACE(name);
    const auto kernels = kernels_of_absent_gpu(load_profile(name));
    if (!kernels) GTEST_SKIP() << "no CUDA";
    const LocalPlans plans(1, kernels.get());
    for (const KeyLevels& levels :
         {key_levels({0.5}, {}, 2), key_levels({0.5, 0.25}, {2, 8}, 8), key_levels({1}, {}, 16)}) {
      for (int64_t cached : {0, 70}) {
        const PlannedForward planned = plans.plan(520, cached, levels);
        EXPECT_EQ(kinds(planned.programs[0])["thin_keys"], 2);
        KeyLevels others = levels;
        others.importance = Importance::previous;
        others.drop_queries = true;
        others.scoring = others.recent;
        const PlannedForward dropped = plans.plan(520, cached, others);
        auto count = kinds(dropped.programs[0]);
        EXPECT_EQ(count["thin_keys"], 3) << "the first attention scores for the second";
        EXPECT_GE(count["paid_keys"], 2);
        EXPECT_EQ(count["order_queries"], 2);
      }
    }
  }
}

// A cap bends scores before the softmax: importances and states would be others. A layer of three,
// the one that thins, has a cap in a program that no family makes.
TEST(ThinnedPlan, CappedScoresAreRefused) {
  const SequenceLayout tokens = even_zigzag_layout(520, 4);
  const Topology topology{.devices = 4};
  ModelShape shape =
      read_model_shape(fmt::format("{}/../configs/llama-3-8b.json", BRAID_TEST_DATA));
  shape.config.layers = 3;
  shape.config.windows.resize(3);
  Program program = shape.forward({.capacity = {.token = 520, .sequence = 1, .row = 1},
                                   .pages = 16,
                                   .page_size = 64,
                                   .pages_per_sequence = 16,
                                   .kv_dtype = DType::bf16,
                                   .activations = DType::bf16});
  std::vector<int> attentions;
  for (int i = 0; i < std::ssize(program.ops); ++i) {
    if (program.ops[i].def == &ops::kAttention) attentions.push_back(i);
  }
  ASSERT_EQ(attentions.size(), 3u);
  Op& second = program.ops[attentions[1]];
  const std::string scope = second.scope;
  auto attrs = second.attrs.as<ops::AttentionAttrs>();
  attrs.softcap = 50;
  second.attrs = Attrs::of(attrs);
  TokenSharding sharding{.mesh = sequence_mesh(SpMode::ring, topology, shape.config.Hq),
                         .q = tokens,
                         .kv = tokens,
                         .levels = key_levels({0.5}, {}, 4)};
  EXPECT_TRUE(attention_over(program, sharding, attentions[0]).dtype == DType::bf16);
  const auto refusal = [&] {
    try {
      attention_over(program, sharding, attentions[1]);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(), fmt::format("--keep: attention at '{}' caps its scores at 50, wanted none: "
                                   "leave it out",
                                   scope));
  sharding.levels.reset();
  EXPECT_EQ(refusal(),
            fmt::format("ring attention at '{}': scores with a cap of 50, wanted none", scope));
}

TEST(ThinnedPlan, RanksThatShareAKvHeadAreRefused) {
  try {
    LocalPlans(16).plan(520, 0, key_levels({0.5}, {}, 8));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error.what(),
                 "--keep: rank 0 has 2 query heads of 1 KV heads, wanted all 4 of each KV head: "
                 "fewer ranks");
  }
}

}  // namespace
}  // namespace braid
