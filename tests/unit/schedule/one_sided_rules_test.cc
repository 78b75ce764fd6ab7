// The three rules of docs/sequence-parallel.md, on which its proof stands, hold for every lowering;
// a Program that breaks one is caught.
#include <gtest/gtest.h>

#include <algorithm>

#include "any_stages.h"
#include "braid/ops/one_sided.h"
#include "braid/ops/segment_attention.h"
#include "braid/parallel/attention/lower_attention.h"
#include "braid/parallel/sequence_parallel.h"
#include "braid/schedule/dependencies.h"
#include "unit/parallel/decoder_program.h"

namespace braid {
namespace {

class Rules {
 public:
  explicit Rules(const Program& program) : program_(program) {
    const Dependencies needs = dependencies_of(program);
    const size_t n = program.ops.size();
    after_.assign(n, std::vector<bool>(n, false));
    for (size_t i = 0; i < n; ++i) {
      for (int need : needs.same[i]) {
        const auto j = static_cast<size_t>(need);
        after_[i][j] = true;
        for (size_t k = 0; k < n; ++k) after_[i][k] = after_[i][k] || after_[j][k];
      }
    }
  }

  // What is broken first, or nothing.
  std::string broken() const {
    for (size_t i = 0; i < program_.ops.size(); ++i) {
      const Op& op = program_.ops[i];
      if (op.def == &ops::kSegmentAttention) {
        if (const std::string what = broken_store(i); !what.empty()) return what;
      }
      if (op.def != &ops::kPull && op.def != &ops::kPush) continue;
      const auto& attrs = op.attrs.as<ops::MoveAttrs>();
      for (const ops::Move& move : attrs.moves) {
        if (move.peer == attrs.rank) continue;
        const ValueId src = op.inputs[static_cast<size_t>(move.src)];
        const ValueId dst = op.inputs[static_cast<size_t>(move.dst)];
        if (op.def == &ops::kPull) {
          if (!sync_with(i, src, false))
            return fmt::format("R1: nobody says that %{} is made", src);
          if (!sync_with(i, src, true)) return fmt::format("R1: %{} may go while it is read", src);
        }
        if (!opened(i, dst)) return fmt::format("R2: %{} is not open", dst);
        if (op.def == &ops::kPush && !closed(i, dst, op.inputs[0])) {
          return fmt::format("R3: nobody waits for what arrives in %{}", dst);
        }
      }
    }
    return "";
  }

 private:
  // Rows stored at other ranks: their buffer is open, and a push that follows tells them.
  std::string broken_store(size_t i) const {
    const Op& op = program_.ops[i];
    const auto& attrs = op.attrs.as<ops::SegmentAttentionAttrs>();
    for (const ops::QSegment& s : attrs.q) {
      if (attrs.stored(s, 1, 1) == 0) continue;
      const ValueId o = op.inputs[3];
      if (!opened(i, o)) return fmt::format("R2: %{} is not open", o);
      const auto tells = [&](size_t p) {
        const Op& push = program_.ops[p];
        return push.def == &ops::kPush && after_[p][i] &&
               std::ranges::count(push.attrs.as<ops::MoveAttrs>().peers(), s.owner) > 0 &&
               closed(p, o, push.inputs[0]);
      };
      bool told = false;
      for (size_t p = i + 1; p < program_.ops.size(); ++p) told = told || tells(p);
      if (!told) return fmt::format("R3: rank {} is not told of its rows of %{}", s.owner, o);
    }
    return "";
  }
  bool is_sync(size_t i) const { return program_.ops[i].def == &ops::kSync; }
  // A sync before or after op i, of a group, that has the value among its inputs.
  bool sync_with(size_t i, ValueId value, bool later) const {
    for (size_t s = 0; s < program_.ops.size(); ++s) {
      const Op& op = program_.ops[s];
      if (is_sync(s) && op.attrs.as<ops::SyncAttrs>().ranks() > 1 &&
          std::ranges::count(op.inputs, value) > 0 && (later ? after_[s][i] : after_[i][s])) {
        return true;
      }
    }
    return false;
  }
  // Made by a sync of a group, which an op that has it as an input follows.
  bool opened(size_t i, ValueId value) const {
    for (size_t s = 0; s < i; ++s) {
      if (is_sync(s) && std::ranges::count(program_.ops[s].outputs, value) > 0) {
        return after_[i][s] && program_.ops[s].attrs.as<ops::SyncAttrs>().ranks() > 1;
      }
    }
    return false;
  }
  // A later sync closes the value and waits for the counters.
  bool closed(size_t i, ValueId value, ValueId counters) const {
    for (size_t s = i + 1; s < program_.ops.size(); ++s) {
      if (!is_sync(s)) continue;
      const auto& inputs = program_.ops[s].inputs;
      const auto begin = inputs.begin() + ops::kSyncFirstClosed;
      if (inputs[ops::kSyncArrivals] == counters && after_[s][i] &&
          std::count(begin, begin + ops::kSyncMaxClosed, value) > 0) {
        return true;
      }
    }
    return false;
  }

  const Program& program_;
  std::vector<std::vector<bool>> after_;  // [ops][ops]: the first follows the second
};

std::vector<Program> programs_of(SpMode mode, const char* topology, const SpRequest& request,
                                 const ops::TakesStages& takes = {}) {
  SequenceAttention a{.q_heads = 8, .kv_heads = 4, .head_dim = 4};
  a.joint_q = a.joint_kv = 3;
  const SequenceMesh mesh = sequence_mesh(mode, parse_topology(topology), 8, request);
  a.q = a.kv = zigzag_layout(37, mesh.ranks(), 3);
  return attention_programs(a, mesh, {.takes = takes, .least_rows = 1});
}

TEST(OneSidedRules, HoldForEveryMesh) {
  for (const char* topology : {"1x2", "1x3", "2x2", "2x4", "4x2"}) {
    const int P = parse_topology(topology).ranks();
    for (SpMode mode : kSpModes) {
      for (int t = 1; t <= P; ++t) {
        for (int u = 1; t * u <= P; ++u) {
          const bool legal = P % (t * u) == 0 && (mode == SpMode::torus || t == 1) &&
                             (mode != SpMode::ring || u == 1) &&
                             (mode != SpMode::ulysses || u == P);
          if (!legal) continue;
          for (const ops::TakesStages& takes : {ops::TakesStages{}, ops::TakesStages{any_stages}}) {
            for (const Program& program : programs_of(
                     mode, topology, {.torus = t, .ulysses = u, .ring = P / (t * u)}, takes)) {
              EXPECT_EQ(Rules(program).broken(), "")
                  << to_string(mode) << " " << t << " " << u << " on " << topology << "\n"
                  << to_string(program);
            }
          }
        }
      }
    }
  }
}

// Several attentions in one Program, keys of earlier steps among theirs, and what gives them to
// rank 0.
TEST(OneSidedRules, HoldInAModel) {
  const Program logical = testing_decoder::decoder(9, 2);
  for (SpMode mode : kSpModes) {
    const SequenceMesh mesh =
        sequence_mesh(mode, parse_topology("2x2"), testing_decoder::kHq,
                      {.ulysses = mode == SpMode::tas ? std::optional(2) : std::nullopt});
    const SequenceLayout q = even_zigzag_layout(9, 4, 12);
    SequenceLayout kv = contiguous_layout({0, 5, 7, 0});
    for (size_t r = 0; r < 4; ++r) {
      kv.ranks[r].insert(kv.ranks[r].end(), q.ranks[r].begin(), q.ranks[r].end());
    }
    for (const RankProgram& rank : lower(logical, sequence_parallel(logical, mesh, q, kv))) {
      EXPECT_EQ(Rules(rank.program).broken(), "") << to_string(mode);
    }
  }
  for (const RankProgram& rank : gather_kv(logical, contiguous_layout({0, 5, 7}))) {
    EXPECT_EQ(Rules(rank.program).broken(), "");
  }
}

TEST(OneSidedRules, ABreachIsCaught) {
  const std::vector<Program> programs =
      programs_of(SpMode::torus, "2x4", {.torus = 2, .ulysses = 2, .ring = 2});
  int breaches = 0;
  // Every value that a sync has, left out of it.
  for (size_t i = 0; i < programs[0].ops.size(); ++i) {
    if (programs[0].ops[i].def != &ops::kSync) continue;
    for (size_t k = 1; k < programs[0].ops[i].inputs.size(); ++k) {
      Program program = programs[0];
      ValueId& input = program.ops[i].inputs[k];
      if (input == kNoValue) continue;
      input = kNoValue;
      EXPECT_NE(Rules(program).broken(), "") << "op " << i << ", input " << k;
      ++breaches;
    }
  }
  EXPECT_GT(breaches, 10);
}

}  // namespace
}  // namespace braid
