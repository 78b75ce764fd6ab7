// The rules R1 to R3 of docs/sequence-parallel.md: every lowering follows them, and a breach of
// each is refused by verify() with its name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "any_phases.h"
#include "braid/ops/one_sided.h"
#include "braid/ops/segment_attention.h"
#include "braid/parallel/attention/lower_attention.h"
#include "braid/parallel/sequence_parallel.h"
#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/strategies/registry.h"
#include "unit/parallel/decoder_program.h"
#include "unit/schedule/names_catalog.h"

namespace braid {
namespace {

using testing::HasSubstr;

// Plans the Programs of all ranks, which verifies them.
void plan_all(std::vector<Program> programs, const Topology& topology,
              const Extents& capacity = {.sequence = 1}) {
  const NamesCatalog catalog;
  Plan plan{std::move(programs), {}};
  plan_schedules(plan, *find_strategy("sequence_parallel"),
                 {.catalogs = {&catalog},
                  .micro_batches = {{.capacity = capacity}},
                  .topology = topology,
                  .price = {}});
}

std::vector<Program> programs_of(const SequenceMesh& mesh, const Kernels& kernels = {}) {
  SequenceAttention a{.q_heads = 8, .kv_heads = 4, .head_dim = 4};
  a.joint_q = a.joint_kv = 3;
  a.q = a.kv = zigzag_layout(37, mesh.ranks(), 3);
  return attention_programs(a, mesh, {.kernels = kernels, .least_rows = 1});
}

TEST(OneSidedRules, HoldForEveryMesh) {
  for (const char* machines : {"1x2", "1x3", "2x2", "2x4", "4x2"}) {
    const Topology topology = parse_topology(machines);
    for (SpMode mode : kSpModes) {
      for (const SequenceMesh& mesh : sequence_meshes(mode, topology, 8)) {
        for (const Kernels& kernels : {Kernels{}, Kernels{&any_phases}}) {
          EXPECT_NO_THROW(plan_all(programs_of(mesh, kernels), topology))
              << to_string(mode) << " " << to_string(mesh.degrees) << " on " << machines;
        }
      }
    }
  }
}

// Keys that are pulled and that no query reads are kept as long as others are.
TEST(OneSidedRules, HoldWithoutQueries) {
  for (const char* machines : {"1x2", "2x1", "2x2"}) {
    const Topology topology = parse_topology(machines);
    const int P = topology.ranks();
    for (SpMode mode : kSpModes) {
      for (const SequenceMesh& mesh : sequence_meshes(mode, topology, 8)) {
        SequenceAttention a{.q_heads = 8, .kv_heads = 4, .head_dim = 4};
        a.q = contiguous_layout(std::vector<int64_t>(static_cast<size_t>(P), 0));
        a.kv = even_layout(37, P);
        for (const Kernels& kernels : {Kernels{}, Kernels{&any_phases}}) {
          EXPECT_NO_THROW(plan_all(
              attention_programs(a, mesh, {.kernels = kernels, .least_rows = 1}), topology))
              << to_string(mode) << " " << to_string(mesh.degrees) << " on " << machines;
        }
      }
    }
  }
}

// Several attentions in one Program, keys of earlier steps among theirs, and what gives them to
// rank 0.
TEST(OneSidedRules, HoldInAModel) {
  const Program logical = testing_decoder::decoder(9, 2);
  const Topology topology = parse_topology("2x2");
  const Extents capacity{.token = 9, .sequence = 1, .row = 3};
  const auto all = [](const std::vector<RankProgram>& ranks) {
    std::vector<Program> programs;
    for (const RankProgram& rank : ranks) programs.push_back(rank.program);
    return programs;
  };
  for (SpMode mode : kSpModes) {
    const SequenceMesh mesh =
        sequence_mesh(mode, topology, testing_decoder::kHq,
                      {.ulysses = mode == SpMode::tas ? std::optional(2) : std::nullopt});
    const SequenceLayout q = even_zigzag_layout(9, 4, 12);
    SequenceLayout kv = contiguous_layout({0, 5, 7, 0});
    for (size_t r = 0; r < 4; ++r) {
      kv.ranks[r].insert(kv.ranks[r].end(), q.ranks[r].begin(), q.ranks[r].end());
    }
    EXPECT_NO_THROW(
        plan_all(all(lower(logical, sequence_parallel(logical, mesh, q, kv))), topology, capacity))
        << to_string(mode);
  }
  EXPECT_NO_THROW(plan_all(all(gather_kv(logical, contiguous_layout({0, 5, 7}))),
                           parse_topology("1x3"), {.sequence = 1}));
}

// A torus with ring groups on two machines, changed before it is planned.
class Breach {
 public:
  Breach() : programs_(programs_of(mesh_)) {}
  const std::vector<Program>& programs() const { return programs_; }
  // Refuses the change to every rank's Program, and names the rule.
  void expect(const std::function<void(Program&, int rank)>& change,
              const std::string& rule) const {
    std::vector<Program> programs = programs_;
    for (size_t r = 0; r < programs.size(); ++r) change(programs[r], static_cast<int>(r));
    try {
      plan_all(programs, mesh_.topology);
      ADD_FAILURE() << "accepted, wanted " << rule;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(e.what(), HasSubstr(rule));
      EXPECT_THAT(e.what(), HasSubstr(" at '"));
    }
  }
  // The ops of a kind.
  std::vector<size_t> all(const OpDef& def) const {
    std::vector<size_t> found;
    for (size_t i = 0; i < programs_[0].ops.size(); ++i) {
      if (programs_[0].ops[i].def == &def) found.push_back(i);
    }
    return found;
  }

 private:
  SequenceMesh mesh_ =
      sequence_mesh(SpMode::torus, parse_topology("2x4"), 8, {.torus = 2, .ulysses = 2, .ring = 2});
  std::vector<Program> programs_;
};

TEST(OneSidedRules, AValueLeftOutOfASyncIsRefused) {
  const Breach plan;
  int left_out = 0;
  for (size_t i : plan.all(ops::kSync)) {
    const std::vector<ValueId>& inputs = plan.programs()[0].ops[i].inputs;
    for (size_t k = 1; k < inputs.size(); ++k) {
      if (inputs[k] == kNoValue) continue;
      const bool kept = k >= ops::kSyncFirstClosed + ops::kSyncMaxClosed;
      SCOPED_TRACE(fmt::format("op {}, input {}", i, k));
      plan.expect([&](Program& program, int) { program.ops[i].inputs[k] = kNoValue; },
                  kept ? "R1 (" : "R3 (");
      ++left_out;
    }
  }
  EXPECT_GT(left_out, 10);
}

// Attributes of a sync, on all ranks or on one.
TEST(OneSidedRules, ASyncOfOtherRanksIsRefused) {
  const Breach plan;
  const auto change = [&](size_t op, const std::function<void(ops::SyncAttrs&, int rank)>& edit) {
    return [op, edit](Program& program, int rank) {
      auto attrs = program.ops[op].attrs.as<ops::SyncAttrs>();
      edit(attrs, rank);
      program.ops[op].attrs = Attrs::of(attrs);
    };
  };
  const auto alone = [](ops::SyncAttrs& sync, int) { sync.group.clear(); };
  const auto halves = [](ops::SyncAttrs& sync, int rank) {
    sync.group = rank < 4 ? std::vector{0, 1, 2, 3} : std::vector{4, 5, 6, 7};
  };
  const auto others = [](ops::SyncAttrs& sync, int rank) {
    if (rank == 3) sync.group = {3, 4};
  };
  const std::vector<size_t> syncs = plan.all(ops::kSync);
  for (size_t op : syncs) {
    const auto& sync = plan.programs()[0].ops[op].attrs.as<ops::SyncAttrs>();
    SCOPED_TRACE(fmt::format("op {}", op));
    if (sync.group.empty()) continue;  // forwarded results: arrivals alone
    plan.expect(change(op, alone), op == syncs.front() || sync.ranks() < 8 ? "R" : "R1 (WAR)");
    plan.expect(change(op, others), "and not all of these meet the same ranks");
    if (sync.ranks() == 8) plan.expect(change(op, halves), op == syncs.front() ? "R" : "R1 (WAR)");
  }
}

TEST(OneSidedRules, ASyncThatCountsOtherPushesIsRefused) {
  const Breach plan;
  for (size_t op : plan.all(ops::kSync)) {
    const auto& arrivals = plan.programs()[0].ops[op].attrs.as<ops::SyncAttrs>().arrivals;
    for (int more : {-1, 1}) {
      for (size_t from = 0; from < arrivals.size(); ++from) {
        if (arrivals[from] == 0) continue;
        SCOPED_TRACE(fmt::format("op {}, rank {}: {} more", op, from, more));
        plan.expect(
            [&](Program& program, int rank) {
              if (rank != 0) return;
              auto attrs = program.ops[op].attrs.as<ops::SyncAttrs>();
              attrs.arrivals[from] += more;
              program.ops[op].attrs = Attrs::of(attrs);
            },
            more < 0 ? "R3 (RAW): rank 0 waits for" : "no deadlock: rank 0 waits for");
      }
    }
  }
}

// Rows of a buffer belong to one writer each; a push goes to a rank that there is.
TEST(OneSidedRules, AMoveElsewhereIsRefused) {
  const Breach plan;
  const auto move = [&](size_t op, int of, const std::function<void(ops::Move&)>& edit) {
    return [=](Program& program, int rank) {
      auto attrs = program.ops[op].attrs.as<ops::MoveAttrs>();
      if (rank != of || attrs.moves.empty()) return;
      edit(attrs.moves[0]);
      program.ops[op].attrs = Attrs::of(attrs);
    };
  };
  int pushes = 0;
  for (size_t op : plan.all(ops::kPush)) {
    const auto& moves = plan.programs()[1].ops[op].attrs.as<ops::MoveAttrs>().moves;
    if (moves.empty()) continue;
    ++pushes;
    SCOPED_TRACE(fmt::format("op {}", op));
    const int64_t head = moves[0].dst_head;
    plan.expect(move(op, 1, [&](ops::Move& m) { m.dst_head = head == 0 ? 2 : 0; }), "(WAW)");
    plan.expect(move(op, 1, [](ops::Move& m) { m.peer = 8; }), "names rank 8 of 8");
  }
  EXPECT_GT(pushes, 0);
}

}  // namespace
}  // namespace braid
