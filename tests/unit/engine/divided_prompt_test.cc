// Products of a prompt divided over ranks with whole weights, beside `--tp`: the same launches
// compute, and all keys reach the caches meanwhile.
#include "braid/parallel/divided_prompt.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "braid/backend/null/null_backend.h"
#include "braid/engine/context_key.h"
#include "braid/engine/prompt_choice.h"
#include "braid/engine/sequence_ranks.h"
#include "braid/model/model_shape.h"
#include "braid/ops/join_sequence.h"
#include "braid/ops/one_sided.h"
#include "braid/ops/sequence.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

constexpr int64_t kPageSize = 64;

class Plans {
 public:
  // With room for `pages` in all, or `apart`: on each rank for its share of them. A sequence has at
  // most 64 pages.
  Plans(int ranks, int layers, int64_t pages = 64, bool apart = false) {
    shape_ = read_model_shape(fmt::format("{}/../configs/llama-3-8b.json", BRAID_TEST_DATA));
    shape_.config.layers = layers;
    shape_.config.windows.resize(layers);
    const CacheShape cache{.pages = pages,
                           .page_size = kPageSize,
                           .pages_per_sequence = 64,
                           .kv_dtype = DType::bf16,
                           .activations = DType::bf16};
    const Topology topology{.devices = ranks};
    planner_.emplace([this](const ForwardShape& s) { return shape_.forward(s); },
                     apart ? rank_cache(cache, ranks) : cache,
                     std::vector(static_cast<size_t>(ranks), &backend_.catalog()), topology);
    cost_.emplace(load_profile("h100"), topology);
  }

  // Beside tokens that are divided by the strategy `of_tokens`.
  PlannedForward divided(int64_t tokens, bool residual = false,
                         const char* of_tokens = "sequence_parallel") const {
    const auto strategies = weights_strategies(*find_strategy(of_tokens));
    return planner_->plan_weights(*strategies[residual ? 1 : 0], capacity(tokens), &*cost_);
  }
  PlannedForward tensor_parallel(int64_t tokens) const {
    ContextKey key;
    key.micro_batches.push_back(capacity(tokens));
    return planner_->plan(*find_strategy("sequential"), {}, key, &*cost_);
  }
  double seconds(const PlannedForward& planned, int64_t tokens) const {
    const Work work{.extents = {.token = tokens, .sequence = 1, .row = 1},
                    .attended = attended_keys(0, tokens),
                    .kv_tokens = tokens};
    return simulate(planned, {&work, 1}, *cost_).seconds;
  }

 private:
  MicroBatch capacity(int64_t tokens) const {
    const SequenceLayout q = even_layout(tokens, planner_->ranks());
    return key_for_tokens(q, q, 1).micro_batches[0];
  }

  ModelShape shape_;
  NullBackend backend_;
  std::optional<ForwardPlanner> planner_;
  std::optional<CostModel> cost_;
};

// Kinds and scopes of a rank's kernels on a stream.
std::vector<std::string> kernels(const PlannedForward& planned, int rank, Stream stream) {
  std::vector<std::string> names;
  for (const Launch& launch : planned.schedules[rank].launches) {
    const Op& op = planned.schedules[rank].op(planned.programs[rank], launch);
    if (launch.stream != stream || !op.def->runs || ops::keeps_place(op)) continue;
    names.push_back(fmt::format("{} {}", op.def->kind, op.scope));
  }
  return names;
}

TEST(DividedPrompt, TheLaunchesOfDividedWeightsCompute) {
  for (int P : {2, 4, 8}) {
    const Plans plans(P, 4);
    const PlannedForward made = plans.divided(512), want = plans.tensor_parallel(512);
    for (int r = 0; r < P; ++r) {
      EXPECT_EQ(kernels(made, r, Stream::compute), kernels(want, r, Stream::compute)) << r;
      const auto moves = kernels(made, r, Stream::comm);
      // For three layers and for the last: two syncs and a push, and a write for each layer.
      EXPECT_EQ(moves.size(), 2 * 3 + 4u) << fmt::format("{}", fmt::join(moves, ", "));
    }
    EXPECT_LT(plans.seconds(made, 512), 1.02 * plans.seconds(want, 512)) << P;
  }
}

// With the residual in parts each sum of a layer, its residual and norm are one kernel. No rank
// holds the whole sum: the step takes less memory.
TEST(DividedPrompt, TheResidualInPartsTakesOneKernelASum) {
  constexpr int kLayers = 4;
  for (int P : {2, 4, 8}) {
    const Plans plans(P, kLayers);
    const PlannedForward whole = plans.divided(512), parts = plans.divided(512, true);
    for (int r = 0; r < P; ++r) {
      EXPECT_EQ(kernels(parts, r, Stream::comm), kernels(whole, r, Stream::comm)) << r;
      std::map<std::string, int> kinds;
      for (const std::string& name : kernels(parts, r, Stream::compute)) {
        ++kinds[name.substr(0, name.find(' '))];
      }
      EXPECT_EQ(kinds["reduce_scatter_add_rms_norm_all_gather"], 2 * kLayers - 1);
      EXPECT_EQ(kinds["reduce_scatter"], 1) << "the last, whose norm takes the wanted row alone";
      EXPECT_EQ(kinds["all_reduce"], 0);
    }
    EXPECT_LT(step_bytes(parts).activations, step_bytes(whole).activations);
    EXPECT_EQ(step_bytes(parts).weights, step_bytes(whole).weights);
  }
  const Plans eight(8, kLayers);
  EXPECT_LT(eight.seconds(eight.divided(2048, true), 2048),
            0.95 * eight.seconds(eight.divided(2048), 2048));
}

// Ranks that share a GPU compute in order in every way: nothing stands beside the computation.
TEST(DividedPrompt, HasOneStreamWhereDividedTokensHave) {
  for (int P : {2, 4}) {
    const Plans plans(P, 3);
    for (bool residual : {false, true}) {
      SCOPED_TRACE(fmt::format("{} ranks, residual {}", P, residual ? "in parts" : "whole"));
      const PlannedForward beside = plans.divided(512, residual);
      const PlannedForward made = plans.divided(512, residual, "sequential");
      for (int r = 0; r < P; ++r) {
        EXPECT_FALSE(kernels(beside, r, Stream::comm).empty());
        EXPECT_TRUE(kernels(made, r, Stream::comm).empty());
        EXPECT_TRUE(kernels(made, r, Stream::side).empty());
        std::vector<std::string> all = kernels(beside, r, Stream::comm);
        std::ranges::copy(kernels(beside, r, Stream::compute), std::back_inserter(all));
        std::vector<std::string> same = kernels(made, r, Stream::compute);
        std::ranges::sort(all);
        std::ranges::sort(same);
        EXPECT_EQ(same, all);
      }
      EXPECT_GE(plans.seconds(made, 512), plans.seconds(beside, 512));
    }
  }
}

// Every rank's buffers get each key and head once.
void expect_each_key_once(const std::vector<const Program*>& programs,
                          const std::vector<int64_t>& taken) {
  std::vector<std::map<ValueId, std::vector<int>>> written(programs.size());
  for (const Program* program : programs) {
    for (const Op& op : program->ops) {
      if (op.def != &ops::kPush) continue;
      for (const ops::Move& m : op.attrs.as<ops::MoveAttrs>().moves) {
        const ValueId to = op.inputs[m.dst], from = op.inputs[m.src];
        const Shape &shape = program->value(to).type.shape, &own = program->value(from).type.shape;
        ASSERT_LE(m.src_head + m.heads, own[2]);
        ASSERT_LE(m.src_row + m.rows, own[1]);
        ASSERT_LE(m.dst_row + m.rows, shape[1]);
        ASSERT_LE(m.dst_head + m.heads, shape[2]);
        std::vector<int>& count = written[m.peer][to];
        count.resize(shape[1] * shape[2]);
        for (int64_t row = 0; row < m.rows; ++row) {
          for (int64_t h = 0; h < m.heads; ++h) {
            ++count[(m.dst_row + row) * shape[2] + m.dst_head + h];
          }
        }
      }
    }
  }
  for (size_t r = 0; r < programs.size(); ++r) {
    size_t buffers = 0;
    for (const Op& op : programs[r]->ops) {
      if (op.def != &ops::kKvWrite) continue;
      for (const ValueId id : {op.inputs[0], op.inputs[1]}) {
        ++buffers;
        const Shape& shape = programs[r]->value(id).type.shape;
        const std::vector<int>& count = written[r][id];
        ASSERT_EQ(std::ssize(count), shape[1] * shape[2]) << "rank " << r;
        for (int64_t i = 0; i < std::ssize(count); ++i) {
          ASSERT_EQ(count[i], i < taken[r] * shape[2] ? 1 : 0) << "rank " << r << ", place " << i;
        }
      }
    }
    EXPECT_EQ(written[r].size(), buffers);
  }
}

// Rank 0 takes every key where it may decode alone. A rank that keeps its own keys alone takes no
// others, however many sequences its cache has room for.
TEST(DividedPrompt, EachKeyReachesItsRanksOnce) {
  constexpr int64_t kPages = 64;  // of a sequence
  struct Caches {
    int64_t pages;
    bool apart;
  };
  for (int P : {2, 3, 4, 5, 8}) {
    for (const Caches c : {Caches{kPages, false}, {kPages, true}, {P * kPages, true}}) {
      const bool residual = c.pages > kPages;
      for (int64_t n : {int64_t{P}, 37L, 512L}) {
        SCOPED_TRACE(fmt::format("{} tokens on {} ranks, {} pages{}", n, P, c.pages,
                                 c.apart ? ", apart" : ""));
        const PlannedForward made = Plans(P, 4, c.pages, c.apart).divided(n, residual);
        std::vector<const Program*> programs;
        std::vector<int64_t> taken;
        for (int r = 0; r < P; ++r) {
          programs.push_back(&made.programs[r]);
          taken.push_back(r == 0 && !c.apart ? n : even_part(n, P, r).size());
        }
        expect_each_key_once(programs, taken);
      }
    }
  }
}

}  // namespace
}  // namespace braid
