// Where one call takes keys and queries as they come: which calls there are, and what they carry.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "any_phases.h"
#include "braid/kernels/cuda/attention/desc.h"
#include "braid/ops/one_sided.h"
#include "braid/parallel/attention/lower_attention.h"

namespace braid {
namespace {

SequenceAttention attention_of(int ranks, bool causal = false) {
  SequenceAttention a{.q_heads = 8, .kv_heads = 4, .head_dim = 64, .window_right = causal ? 0 : -1};
  a.joint_q = a.joint_kv = 70;
  a.q = a.kv = causal ? zigzag_layout(1001, ranks, 70) : even_layout(1001, ranks, 70);
  return a;
}

std::vector<const ops::SegmentAttentionAttrs*> calls(const Program& program) {
  std::vector<const ops::SegmentAttentionAttrs*> result;
  for (const Op& op : program.ops) {
    if (op.def != &ops::kSegmentAttention) continue;
    result.push_back(&op.attrs.as<ops::SegmentAttentionAttrs>());
  }
  return result;
}

double pairs(const Program& program) {
  double sum = 0;
  for (const auto* call : calls(program)) {
    for (double n : call->pairs()) sum += n * static_cast<double>(call->heads);
  }
  return sum;
}

struct Want {
  SpMode mode;
  const char* machines;
  SpRequest request;
  int calls;
  int phases;     // of the call with the most
  int early = 0;  // ranks whose rows leave before the call ends
};

class AttentionPhasesOf : public testing::TestWithParam<Want> {};

TEST_P(AttentionPhasesOf, AreOneCall) {
  const Want& want = GetParam();
  for (bool causal : {false, true}) {
    const SequenceMesh mesh =
        sequence_mesh(want.mode, parse_topology(want.machines), 8, want.request);
    const SequenceAttention a = attention_of(mesh.ranks(), causal);
    const auto plain = attention_programs(a, mesh),
               staged = attention_programs(a, mesh, {{&any_phases}});
    for (size_t r = 0; r < plain.size(); ++r) {
      EXPECT_EQ(pairs(staged[r]), pairs(plain[r]));
      const auto made = calls(staged[r]);
      EXPECT_EQ(static_cast<int>(made.size()), want.calls);
      int phases = 0;
      for (const auto* call : made) {
        phases = std::max(phases, call->last_phase());
        // What takes phases carries no state.
        if (call->last_phase() > 0) {
          EXPECT_TRUE(!call->load_state && call->finalize);
        }
        // What leaves early is all that is not this rank's, and comes after its own.
        std::set<int64_t> early;
        for (const ops::QSegment& s : call->q) {
          if (s.part == kLastPart) continue;
          EXPECT_NE(s.out, ops::QSegment::Out::o);
          EXPECT_GT(s.phase, call->q.front().phase);
          if (s.out == ops::QSegment::Out::send) early.insert(s.out_row);
        }
        EXPECT_EQ(early.empty(), want.early == 0);
      }
      EXPECT_EQ(phases, want.phases);
      for (const auto* call : calls(plain[r])) EXPECT_EQ(call->last_phase(), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Modes, AttentionPhasesOf,
    testing::Values(Want{SpMode::ring, "1x4", {}, 1, 3}, Want{SpMode::ring, "2x2", {}, 1, 3},
                    Want{SpMode::ulysses, "1x4", {}, 1, 0},
                    Want{SpMode::usp, "2x2", {.ring = 2}, 1, 1},
                    // One class' queries and keys, all stored at their owners.
                    Want{SpMode::torus, "1x2", {.torus = 2, .ulysses = 1, .ring = 1}, 1, 2},
                    Want{SpMode::torus, "1x4", {.torus = 2, .ulysses = 2, .ring = 1}, 1, 4},
                    // Results that are sent leave early.
                    Want{SpMode::torus, "2x1", {.torus = 2, .ulysses = 1, .ring = 1}, 1, 2, 1},
                    Want{SpMode::torus, "3x1", {.torus = 3, .ulysses = 1, .ring = 1}, 1, 4, 2},
                    Want{SpMode::torus, "2x2", {.torus = 2, .ulysses = 2, .ring = 1}, 1, 4, 2},
                    // Rings inside a torus meet between their phases.
                    Want{SpMode::torus, "2x2", {.torus = 2, .ulysses = 1, .ring = 2}, 6, 0}));

// Stage s is what the s-th pull brings; what others have of a rank's own class comes first.
TEST(AttentionPhases, AreNumberedByPulls) {
  const SpRequest classes{.torus = 4, .ulysses = 1, .ring = 1};
  const SpRequest groups{.torus = 2, .ulysses = 2, .ring = 1};
  for (const auto& [machines, request, phases] : {std::tuple{"1x4", classes, 6},
                                                  {"4x1", classes, 6},
                                                  {"2x2", classes, 6},
                                                  {"1x4", groups, 4}}) {
    const SequenceMesh mesh = sequence_mesh(SpMode::torus, parse_topology(machines), 8, request);
    for (const Program& program : attention_programs(attention_of(4), mesh, {{&any_phases}})) {
      const auto input = std::ranges::find(program.values, "joint_q", &Value::name);
      const auto joint_q = static_cast<ValueId>(input - program.values.begin());
      std::vector<std::vector<ValueId>> brought;
      for (const Op& op : program.ops) {
        if (op.def == &ops::kPull) brought.push_back({op.inputs[0], op.inputs[1]});
        if (op.def != &ops::kSegmentAttention) continue;
        const auto& attrs = op.attrs.as<ops::SegmentAttentionAttrs>();
        if (attrs.last_phase() == 0) continue;
        EXPECT_EQ(attrs.last_phase(), phases);
        for (size_t i = ops::SegmentAttentionAttrs::kFirstQ; i < op.inputs.size(); ++i) {
          const int phase = attrs.phase_of(i);
          if (phase < 1 || op.inputs[i] == joint_q) continue;  // that waits for others' queries
          const auto& values = brought[static_cast<size_t>(phase) - 1];
          EXPECT_EQ(std::ranges::count(values, op.inputs[i]), 1) << "input " << i;
        }
      }
      EXPECT_EQ(static_cast<int>(brought.size()), phases);
    }
  }
}

// Each part is half of the one before, none is empty, and all together are the same pairs.
TEST(AttentionPhases, KeysOfOtherMachinesComeInParts) {
  const SpRequest classes{.torus = 2, .ulysses = 1, .ring = 1};
  const SpRequest groups{.torus = 2, .ulysses = 2, .ring = 1};
  for (const auto& [mode, machines, request, phases, crossing] :
       {std::tuple{SpMode::ring, "2x1", SpRequest{}, 1, 1},
        {SpMode::ring, "2x2", SpRequest{}, 3, 2},
        {SpMode::torus, "2x1", classes, 2, 1},
        {SpMode::torus, "2x2", groups, 4, 1}}) {
    for (bool causal : {false, true}) {
      const SequenceMesh mesh = sequence_mesh(mode, parse_topology(machines), 8, request);
      const SequenceAttention a = attention_of(mesh.ranks(), causal);
      const auto plain = attention_programs(a, mesh);
      for (int parts = 1; parts <= 5; ++parts) {
        const auto made = attention_programs(
            a, mesh, {.kernels = {&any_phases}, .most_parts = parts, .least_rows = 1});
        for (size_t r = 0; r < made.size(); ++r) {
          EXPECT_EQ(pairs(made[r]), pairs(plain[r]));
          const auto& call = *calls(made[r]).at(0);
          ASSERT_EQ(call.last_phase(), phases + crossing * (parts - 1));
          std::vector<int64_t> rows(static_cast<size_t>(call.last_phase()) + 1);
          for (const auto& s : call.kv) rows[static_cast<size_t>(s.phase)] += s.rows;
          for (size_t n = rows.size() - static_cast<size_t>(parts) + 1; n < rows.size(); ++n) {
            EXPECT_NEAR(2 * static_cast<double>(rows[n]), static_cast<double>(rows[n - 1]), 6);
            EXPECT_GT(rows[n], 0);
          }
        }
      }
    }
  }
}

// Fewer where parts would be short, where a call would have too many segments, and inside a
// machine.
TEST(AttentionPhases, PartsAreAsManyAsFit) {
  const auto phases = [](const char* machines, const AttentionDivision& how) {
    const SequenceMesh mesh = sequence_mesh(SpMode::ring, parse_topology(machines), 8, {});
    return calls(attention_programs(attention_of(mesh.ranks()), mesh, how)[0]).at(0)->last_phase();
  };
  const Kernels any{&any_phases};
  EXPECT_EQ(phases("2x1", {.kernels = any, .least_rows = 33}),
            4);  // of 500 and 501 rows: 33 are one of 15 parts
  EXPECT_EQ(phases("2x1", {.kernels = any, .least_rows = 34}), 3);
  EXPECT_EQ(phases("2x1", {.kernels = any, .least_rows = 256}), 1);
  EXPECT_EQ(phases("2x1", {.kernels = any, .least_rows = 1, .most_segments = 5}),
            3);  // beside the prefix' and the own ones
  EXPECT_EQ(phases("2x1", {.kernels = any, .least_rows = 1, .most_segments = 2}), 1);
  EXPECT_EQ(phases("4x1", {.kernels = any, .least_rows = 1, .most_segments = 10}),
            8);  // two, two and four
  EXPECT_EQ(phases("1x2", {.kernels = any, .least_rows = 1}), 1);
}

// Parts of keys are for a whole call alone. The first of the cut calls takes all queries that are
// here, the prefix' too.
TEST(AttentionPhases, CutCallsTakeWholeTransfers) {
  for (const auto& [mode, pulls] : {std::pair{SpMode::ring, 1}, {SpMode::torus, 2}}) {
    const SequenceMesh mesh = sequence_mesh(mode, parse_topology("2x1"), 8, {});
    const SequenceAttention a = attention_of(mesh.ranks());
    const auto pulls_of = [](const Program& program) {
      return std::ranges::count(program.ops, &ops::kPull, &Op::def);
    };
    const Program cut = attention_programs(a, mesh, {.least_rows = 1})[0];
    const Program whole =
        attention_programs(a, mesh, {.kernels = {&any_phases}, .least_rows = 1})[0];
    EXPECT_EQ(pulls_of(cut), pulls) << to_string(mode);
    EXPECT_EQ(pulls_of(whole), pulls + 3) << to_string(mode);
    EXPECT_EQ(
        std::ranges::count(calls(cut).at(0)->q, ops::QSegment::Out::joint, &ops::QSegment::out), 1);
  }
}

// Eight ranks, each with two runs of rows and of keys of every other's.
TEST(AttentionPhases, OfEightRanksAreOneCallOfTheKernels) {
  const AnyPhases fits([](const ops::SegmentAttentionAttrs& attrs) {
    return attrs.q.size() <= cuda::kMaxQSegments && attrs.kv.size() <= cuda::kMaxKvSegments;
  });
  for (bool causal : {false, true}) {
    for (const char* machines : {"8x1", "1x8"}) {
      const SpRequest request{.torus = 8, .ulysses = 1, .ring = 1};
      const SequenceMesh mesh = sequence_mesh(SpMode::torus, parse_topology(machines), 8, request);
      for (const Program& program : attention_programs(attention_of(8, causal), mesh, {{&fits}})) {
        EXPECT_EQ(calls(program).size(), 1) << machines << (causal ? ", causal" : "");
      }
    }
  }
}

// A call that the kernels of one rank do not take is made phase by phase on all.
TEST(AttentionPhases, WhatOneRankDoesNotTakeIsApart) {
  const AnyPhases few([](const ops::SegmentAttentionAttrs& attrs) { return attrs.kv.size() <= 3; });
  const SequenceMesh mesh = sequence_mesh(SpMode::ring, parse_topology("1x4"), 8, {});
  const SequenceAttention a = attention_of(4);
  const auto plain = attention_programs(a, mesh), made = attention_programs(a, mesh, {{&few}});
  for (size_t r = 0; r < plain.size(); ++r) EXPECT_EQ(to_string(made[r]), to_string(plain[r]));
}

}  // namespace
}  // namespace braid
