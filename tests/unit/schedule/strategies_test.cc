// What the strategies make of a decoder: order, memory, and that nothing is ever copied.
#include "braid/schedule/strategies/registry.h"

#include <dlfcn.h>

#include <cmath>
#include <set>

#include "braid/schedule/launch_order.h"
#include "unit/schedule/step_oracle.h"

namespace braid::testing_schedule {
namespace {

struct Case {
  std::string name;
  int ranks, micro_batches;
};
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& name : strategy_names()) {
    for (int P = 1; P <= 4; ++P) {
      for (int M = 1; M <= 3; ++M) all.push_back({name, P, M});
    }
  }
  return all;
}

PlanConfig config_of(const OpScheduler& strategy, int ranks, int micro_batches) {
  return {.ranks = ranks,
          .micro_batches = micro_batches,
          .sharded = strategy.layout({}).token_sharded_residual};
}

// gemm_collective and sequential divide nothing, and speak of micro-batch 0 alone.
bool divides(const OpScheduler& strategy) {
  const SequenceInfo prompt = {.tokens = 4096};
  return strategy.split({{&prompt, 1}, 4096, 1}).size() > 1;
}

class Strategies : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    strategy_ = find_strategy(GetParam().name);
    if (!divides(*strategy_) && GetParam().micro_batches > 1) {
      EXPECT_THROW(plan(GetParam().micro_batches), Error) << "its other micro-batches never run";
      return;
    }
    plan_ = plan(GetParam().micro_batches);
  }
  Planned plan(int micro_batches) const {
    return planned(*strategy_, config_of(*strategy_, GetParam().ranks, micro_batches));
  }

  std::shared_ptr<const OpScheduler> strategy_;
  Planned plan_;
};

// Each launch is an op of the lowered Program, or a fused one that the replacement table knows;
// nothing else, a copy least of all.
TEST_P(Strategies, LaunchOnlyWhatTheProgramHolds) {
  std::set<std::string_view> replacements;
  for (std::string_view name : replacement_names()) replacements.insert(name);
  for (size_t r = 0; r < plan_.schedules.size(); ++r) {
    const Program& program = plan_.programs[r];
    size_t ran = 0;
    for (const Launch& l : plan_.schedules[r].launches) {
      ran += static_cast<size_t>(l.num_ops) * static_cast<size_t>(l.num_micro_batches);
      const Op& op = plan_.schedules[r].op(program, l);
      if (l.replacement < 0) {
        EXPECT_EQ(&op, &program.ops[static_cast<size_t>(l.op)]);
      } else {
        EXPECT_TRUE(replacements.contains(op.def->kind)) << op.def->kind;
        EXPECT_GT(l.num_ops, 1);
      }
    }
    EXPECT_EQ(ran, program.ops.size() * plan_.schedules[r].micro_batches.size());
  }
}

TEST_P(Strategies, NoOrderOfTheirStreamsDoesHarm) {
  if (plan_.schedules.empty()) return;
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 rng(seed);
  EXPECT_EQ(StepOracle(plan_, rng, false).hazard(), "");
}

// Ranks say the same, and say it again.
TEST_P(Strategies, ArePure) {
  if (plan_.schedules.empty()) return;
  const Planned again = plan(GetParam().micro_batches);
  for (size_t r = 0; r < plan_.schedules.size(); ++r) {
    EXPECT_EQ(hash_of(plan_.schedules[r]), hash_of(plan_.schedules[0]));
    EXPECT_EQ(hash_of(plan_.schedules[r]), hash_of(again.schedules[r]));
  }
}

// A micro-batch runs at most one communication (or attention, where that has a stream of its own)
// at a time, since its next op reads the result: beyond what sequential holds of both halves, a
// micro-batch keeps the operands and scratch of that one launch alive. Blocks are placed first fit,
// which no bound covers in general: that the arena stays within it is measured here, not proven.
TEST_P(Strategies, ArenaIsSequentialsAndWhatOverlapKeeps) {
  if (plan_.schedules.empty()) return;
  const int P = GetParam().ranks, M = GetParam().micro_batches;
  PlanConfig parts = config_of(*strategy_, P, M), whole = config_of(*strategy_, P, 1);
  parts.tokens = round_up(64, P);
  whole.tokens = parts.tokens * M;
  const Planned split = planned(*strategy_, parts);
  const Planned sequential = planned(*sequential_strategy(), whole);
  const MemoryPlan &memory = split.schedules[0].memory, &base = sequential.schedules[0].memory;

  const Schedule& s = split.schedules[0];
  std::vector<int64_t> beside(static_cast<size_t>(M), 0);
  for (size_t i = 0; i < s.launches.size(); ++i) {
    const Launch& l = s.launches[i];
    if (l.stream == Stream::compute) continue;
    int64_t bytes = round_up(l.kernel.workspace_bytes, MemoryPlan::kAlignment);
    const Op& op = s.op(split.programs[0], l);
    for (const auto* ids : {&op.inputs, &op.outputs}) {
      for (ValueId id : *ids) {
        if (id == kNoValue || split.programs[0].value(id).kind != ValueKind::computed) continue;
        int64_t most = 0;
        for (const Program& program : split.programs) {
          most = std::max(most, ceil_div(program.value(id).type.shape.elems() * 4, M));
        }
        bytes += round_up(most, MemoryPlan::kAlignment);
      }
    }
    auto& mine = beside[static_cast<size_t>(l.micro_batch)];
    mine = std::max(mine, bytes);
  }
  int64_t overlap = 0;
  for (int64_t bytes : beside) overlap += bytes;
  RecordProperty("arena", static_cast<int>(memory.arena_bytes));
  RecordProperty("sequential", static_cast<int>(base.arena_bytes));
  RecordProperty("overlap_keeps", static_cast<int>(overlap));
  if (P == 2) {
    printf(
        "%s, %d micro-batches: arena %ld, live %ld; sequential %ld, live %ld; overlap keeps %ld\n",
        GetParam().name.c_str(), M, memory.arena_bytes, memory.live_bytes, base.arena_bytes,
        base.live_bytes, overlap);
  }
  EXPECT_GE(memory.arena_bytes, memory.live_bytes);
  EXPECT_LE(memory.arena_bytes, base.arena_bytes + overlap);
}

// Whatever a later part of a prompt attends to was written before, by streams and waits alone.
TEST_P(Strategies, LaterPartsOfAPromptSeeTheEarlierOnesKeys) {
  if (plan_.schedules.empty()) return;
  const Schedule& s = plan_.schedules[0];
  const LaunchOrder order(s.launches);
  // Launches of a kind for a micro-batch, layer by layer.
  const auto all = [&](std::string_view kind, int mb) {
    std::vector<int> result;
    for (int layer = 0, from = 0; layer < 2; ++layer) {
      result.push_back(plan_.find(kind, mb, from));
      from = result.back() + 1;
    }
    return result;
  };
  for (int j = 0; j < GetParam().micro_batches; ++j) {
    for (int i = 0; i <= j; ++i) {
      const std::vector<int> reads = all("attention", j), writes = all("rope_append", i);
      for (size_t layer = 0; layer < reads.size(); ++layer) {
        EXPECT_TRUE(order.before(writes[layer], reads[layer]))
            << "layer " << layer << ", attention of " << j << ", keys of " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Strategies, testing::ValuesIn(cases()), [](const auto& info) {
  return fmt::format("{}_P{}_M{}", info.param.name, info.param.ranks, info.param.micro_batches);
});

// The reason to have them: on two ranks, communication of one half runs beside products of the
// other, in both directions.
TEST(Overlapping, CommunicationAndComputationOfDifferentMicroBatchesAreNotOrdered) {
  for (const char* name : {"overlap", "nanoflow", "tokenweave"}) {
    SCOPED_TRACE(name);
    const auto strategy = find_strategy(name);
    const Planned plan = planned(*strategy, {.ranks = 2,
                                             .micro_batches = 2,
                                             .sharded = strategy->layout({}).token_sharded_residual,
                                             .layers = 8});
    const Schedule& s = plan.schedules[0];
    const LaunchOrder order(s.launches);
    std::array<int, 2> hidden{};
    std::array<int, 2> total{};
    for (int a = 0; a < order.size(); ++a) {
      const Launch& comm = s.launches[static_cast<size_t>(a)];
      if (comm.stream != Stream::comm) continue;
      ++total[static_cast<size_t>(comm.micro_batch)];
      for (int b = 0; b < order.size(); ++b) {
        const Launch& other = s.launches[static_cast<size_t>(b)];
        const std::string_view kind = s.op(plan.programs[0], other).def->kind;
        if (other.stream != Stream::compute || other.micro_batch == comm.micro_batch) continue;
        if (kind != "linear" && kind != "gated_linear") continue;
        if (!order.before(a, b) && !order.before(b, a)) {
          ++hidden[static_cast<size_t>(comm.micro_batch)];
          break;
        }
      }
    }
    for (size_t mb : {0u, 1u}) {
      EXPECT_GE(hidden[mb] * 4, total[mb] * 3)
          << hidden[mb] << " of " << total[mb] << " of micro-batch " << mb;
    }
  }
}

TEST(Registry, KnowsItsStrategiesAndRefusesOthers) {
  EXPECT_EQ(strategy_names()[0], "sequential");
  for (const std::string& name : strategy_names()) EXPECT_EQ(find_strategy(name)->name(), name);
  expect_refused([] { find_strategy("fastest"); }, {"'fastest'", "sequential, overlap"});
  expect_refused([] { find_strategy(""); }, {"''"});
  expect_refused([] { find_strategy("./no_such_strategy.so"); }, {"no_such_strategy.so"});
  expect_refused([] { find_strategy("no_such_strategy.so"); }, {"no_such_strategy.so"});
  Dl_info math{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&dlopen), &math), 0);
  expect_refused([&] { find_strategy(math.dli_fname); }, {math.dli_fname, "BRAID_STRATEGY"});
}

}  // namespace
}  // namespace braid::testing_schedule
