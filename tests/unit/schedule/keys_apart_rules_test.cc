// Queries that go to keys on all ranks: the Programs follow the rules of docs/sequence-parallel.md,
// a breach is refused by its name, and what moves is what the formula says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/ops/attention_state.h"
#include "braid/ops/one_sided.h"
#include "braid/ops/sequence.h"
#include "braid/parallel/lowering.h"
#include "braid/parallel/sequence_parallel.h"
#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/strategies/registry.h"
#include "unit/parallel/decoder_program.h"
#include "unit/schedule/names_catalog.h"

namespace braid {
namespace {

using testing::HasSubstr;
using namespace testing_decoder;

constexpr int kLayers = 2;

// `own`: further tokens of each rank.
std::vector<Program> programs_of(int64_t guests, int P, int64_t own = 0) {
  const int64_t T = guests + P * own;
  const Program logical = decoder(T, kLayers);
  SequenceLayout none;
  none.ranks.resize(static_cast<size_t>(P));
  LayoutPlan plan =
      sequence_parallel(logical, sequence_mesh(SpMode::ring, {.machines = 1, .devices = P}, kHq),
                        even_layout(T, P), none);
  plan.tokens->apart =
      KeysApart{.sequences = 2, .slots = 64, .windows = attention_windows(logical), .own = own};
  std::vector<Program> programs;
  for (RankProgram& rank : lower(logical, plan)) programs.push_back(std::move(rank.program));
  return programs;
}

Plan plan_all(std::vector<Program> programs, int64_t T, const std::string& strategy,
              const NamesCatalog& catalog = {}) {
  const int P = static_cast<int>(programs.size());
  Plan plan{std::move(programs), {}};
  plan_schedules(
      plan, *find_strategy(strategy),
      {.catalogs = {&catalog},
       .micro_batches =
           {{.capacity = {.token = T, .sequence = 1, .row = 3, .shard = ceil_div(T, int64_t{P})}}},
       .topology = {.machines = 1, .devices = P},
       .price = {}});
  return plan;
}

TEST(KeysApartRules, HoldForAllRanksAndTokens) {
  for (int P = 2; P <= 8; ++P) {
    for (int64_t T : {1, 2, 5, 17}) {
      for (const char* strategy : {"sequential", "sequence_parallel", "overlap"}) {
        EXPECT_NO_THROW(plan_all(programs_of(T, P), T, strategy))
            << T << " tokens on " << P << " ranks, " << strategy;
      }
    }
  }
}

TEST(KeysApartRules, HoldBesideTokensOfRanks) {
  for (int P = 2; P <= 8; ++P) {
    for (int64_t each : {0, 1, 4}) {
      for (int64_t own : {1, 6}) {
        for (const char* strategy : {"sequential", "sequence_parallel", "overlap"}) {
          EXPECT_NO_THROW(plan_all(programs_of(P * each, P, own), P * (each + own), strategy))
              << each << " guests and " << own << " own tokens on each of " << P << " ranks, "
              << strategy;
        }
      }
    }
  }
}

// Own tokens move to no other rank, and one call attends for them and for all ranks' guests.
TEST(KeysApartRules, OneCallAttendsForGuestsAndOwnTokens) {
  const auto to_peers = [](const std::vector<Program>& programs) {
    int64_t all = 0;
    for (const Program& program : programs) {
      for (const Op& op : program.ops) {
        if (op.def != &ops::kPush) continue;
        const auto& attrs = op.attrs.as<ops::MoveAttrs>();
        for (const ops::Move& move : attrs.moves) {
          if (move.peer == attrs.rank) continue;
          all += move.elems(program.value(op.inputs[static_cast<size_t>(move.src)]).type.shape[3]);
        }
      }
    }
    return all;
  };
  const auto pushes = [](const Program& program) {
    return std::ranges::count(program.ops, &ops::kPush, &Op::def);
  };
  EXPECT_EQ(pushes(programs_of(0, 3, 5)[0]), 0);
  EXPECT_EQ(pushes(programs_of(6, 3, 5)[0]), 2 * kLayers);
  EXPECT_EQ(to_peers(programs_of(6, 3, 5)), to_peers(programs_of(6, 3)));
  for (const int64_t guests : {0, 6}) {
    for (const Program& program : programs_of(guests, 3, 5)) {
      int calls = 0;
      for (const Op& op : program.ops) {
        if (op.def != &ops::kAttentionState) continue;
        ++calls;
        EXPECT_EQ(program.value(op.inputs[0]).type.shape[1], guests + 5);
      }
      EXPECT_EQ(calls, kLayers);
    }
  }
}

constexpr const OpDef* kHandoverOps[] = {&ops::kPush, &ops::kSync, &ops::kMergeStates,
                                         &ops::kKvWrite};
constinit const JoinForm kHandover = {.name = "handover", .ops = kHandoverOps};

// Joins a push, the sync behind, and the reader of what came.
class ExchangingCatalog : public NamesCatalog {
 public:
  LaunchGroup join(const Program&, const LaunchRun& run) const override {
    const bool joins = run.ops.size() > 2 && run.ops[0]->def == &ops::kPush;
    return joins ? LaunchGroup{.count = 3, .form = &kHandover, .kernel = "handover.test"}
                 : LaunchGroup{};
  }
};

// A push has no outputs: the sync takes the buffers that the push writes at peers, and its reader
// takes the buffers that the sync closes.
TEST(KeysApartRules, HandoversMayBeOneLaunch) {
  const ExchangingCatalog catalog;
  for (const int64_t own : {0, 3}) {
    const Plan plan = plan_all(programs_of(2, 2, own), 2 + 2 * own, "sequential", catalog);
    for (const Schedule& schedule : plan.schedules) {
      EXPECT_EQ(std::ssize(schedule.groups), 2 * kLayers);
    }
  }
}

// q, k and v of each token to all other ranks, and a state of each head back.
TEST(KeysApartRules, MoveQueriesAndStates) {
  for (int P = 2; P <= 8; ++P) {
    for (int64_t T : {1, 5, 17}) {
      int64_t there = 0, back = 0;
      for (const Program& program : programs_of(T, P)) {
        for (const Op& op : program.ops) {
          if (op.def != &ops::kPush) continue;
          const auto& attrs = op.attrs.as<ops::MoveAttrs>();
          for (const ops::Move& move : attrs.moves) {
            const int64_t D = program.value(op.inputs[static_cast<size_t>(move.src)]).type.shape[3];
            if (move.peer != attrs.rank) (D == kD ? there : back) += move.elems(D);
          }
        }
      }
      EXPECT_EQ(there, kLayers * T * (P - 1) * (kHq + 2 * kHkv) * kD) << T << " on " << P;
      EXPECT_EQ(back, kLayers * T * (P - 1) * kHq * (kD + 2)) << T << " on " << P;
    }
  }
}

// Buffers of all layers are opened together while they are small.
TEST(KeysApartRules, RanksMeetOnceAStep) {
  const auto meetings = [](int64_t T) {
    int64_t count = 0;
    const std::vector<Program> programs = programs_of(T, 3);
    for (const Op& op : programs[0].ops) {
      count += op.def == &ops::kSync && op.attrs.as<ops::SyncAttrs>().group.size() > 1 &&
               op.scope.starts_with("layers.");
    }
    return count;
  };
  EXPECT_EQ(meetings(1), 1);
  EXPECT_EQ(meetings(17), 1);
  EXPECT_EQ(meetings(1 << 20), kLayers);
}

// Changes the Programs of all ranks, and expects a refusal by the rule's name.
void expect_refused(const std::function<void(Op& op, int rank)>& change, const std::string& rule) {
  std::vector<Program> programs = programs_of(5, 3);
  for (size_t r = 0; r < programs.size(); ++r) {
    for (Op& op : programs[r].ops) {
      if (op.scope.starts_with("layers.0.attn.")) change(op, static_cast<int>(r));
    }
  }
  try {
    plan_all(std::move(programs), 5, "sequence_parallel");
    ADD_FAILURE() << "not refused, wanted " << rule;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(rule));
  }
}

TEST(KeysApartRules, BreachesAreRefused) {
  const auto in = [](const Op& op, std::string_view stage, const OpDef& def) {
    return op.def == &def && op.scope.ends_with(stage);
  };
  expect_refused(
      [&](Op& op, int) {
        if (in(op, ".wait_states", ops::kSync)) op.inputs[ops::kSyncFirstClosed] = kNoValue;
      },
      "R3");
  expect_refused(
      [&](Op& op, int) {
        if (in(op, ".wait_qkv", ops::kSync)) op.inputs[ops::kSyncFirstClosed + 1] = kNoValue;
      },
      "R3");
  expect_refused(
      [&](Op& op, int) {
        if (!in(op, ".open", ops::kSync)) return;
        auto attrs = op.attrs.as<ops::SyncAttrs>();
        attrs.group.clear();
        op.attrs = Attrs::of(attrs);
      },
      "R2");
  expect_refused(
      [&](Op& op, int rank) {
        if (rank != 1 || !in(op, ".wait_states", ops::kSync)) return;
        auto attrs = op.attrs.as<ops::SyncAttrs>();
        attrs.arrivals[2] += 1;
        op.attrs = Attrs::of(attrs);
      },
      "no deadlock");
}

}  // namespace
}  // namespace braid
