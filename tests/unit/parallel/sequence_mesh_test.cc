// Which ranks do what in sequence-parallel attention, and what is refused.
#include "braid/parallel/attention/sequence_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/parallel/attention/lower_attention.h"

namespace braid {
namespace {

SpDegrees degrees(SpMode mode, const char* topology, int64_t heads, const SpRequest& request = {}) {
  return sequence_mesh(mode, parse_topology(topology), heads, request).degrees;
}

std::string refusal(SpMode mode, const char* topology, int64_t heads, const SpRequest& request) {
  try {
    sequence_mesh(mode, parse_topology(topology), heads, request);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(SequenceMesh, FollowsTheRule) {
  // Section 4.2: P_u = gcd(N M, H).
  EXPECT_EQ(degrees(SpMode::torus, "4x8", 24), (SpDegrees{4, 2, 4}));
  EXPECT_EQ(degrees(SpMode::tas, "4x8", 24), (SpDegrees{1, 8, 4}));
  EXPECT_EQ(degrees(SpMode::usp, "4x8", 24), (SpDegrees{1, 8, 4}));
  EXPECT_EQ(degrees(SpMode::torus, "3x8", 24), (SpDegrees{3, 8, 1}));
  EXPECT_EQ(degrees(SpMode::torus, "2x4", 9), (SpDegrees{1, 1, 8}));  // gcd 1: nothing but a ring
  EXPECT_EQ(degrees(SpMode::ring, "2x4", 9), (SpDegrees{1, 1, 8}));
  EXPECT_EQ(degrees(SpMode::ulysses, "2x4", 9), (SpDegrees{1, 8, 1}));
  // N does not divide P_u: torus over as many machines as do.
  EXPECT_EQ(degrees(SpMode::torus, "4x1", 6), (SpDegrees{2, 1, 2}));
  EXPECT_EQ(degrees(SpMode::torus, "6x2", 8), (SpDegrees{2, 2, 3}));
}

TEST(SequenceMesh, PinnedDegreesStay) {
  EXPECT_EQ(degrees(SpMode::torus, "4x8", 24, {.ring = 2}), (SpDegrees{4, 4, 2}));
  EXPECT_EQ(degrees(SpMode::torus, "4x8", 24, {.ulysses = 4}), (SpDegrees{2, 4, 4}));
  EXPECT_EQ(degrees(SpMode::torus, "4x8", 24, {.torus = 2}), (SpDegrees{2, 4, 4}));
  EXPECT_EQ(degrees(SpMode::tas, "2x2", 9, {.ulysses = 4}), (SpDegrees{1, 4, 1}));  // uneven heads
  EXPECT_EQ(degrees(SpMode::usp, "2x4", 24, {.ring = 2}), (SpDegrees{1, 4, 2}));
}

TEST(SequenceMesh, GroupsLieAsTheModeSays) {
  const Topology topology = parse_topology("4x8");
  const auto spans = [&](const SequenceMesh& mesh, const char* axis) {
    std::set<int> machines;
    for (int rank : mesh.mesh.group(13, axis)) machines.insert(topology.machine_of(rank));
    return machines.size();
  };
  const SequenceMesh torus = sequence_mesh(SpMode::torus, topology, 24);
  EXPECT_EQ(spans(torus, "torus"), 4u);
  EXPECT_EQ(spans(torus, "ulysses"), 1u);
  EXPECT_EQ(spans(torus, "ring"), 1u);
  EXPECT_EQ(spans(sequence_mesh(SpMode::tas, topology, 24), "ring"), 1u);
  const SequenceMesh usp = sequence_mesh(SpMode::usp, topology, 24);
  EXPECT_EQ(spans(usp, "ulysses"), 1u);
  EXPECT_EQ(spans(usp, "ring"), 4u);
  for (const SequenceMesh& mesh : {torus, usp}) {
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      EXPECT_EQ(mesh.rank(mesh.t(rank), mesh.u(rank), mesh.r(rank)), rank);
    }
  }
}

// In a step every rank is read by one other, and where each machine has as many ranks of the ring,
// all ranks read inside their machine or all across: two readers never share a port.
TEST(SequenceMesh, RingStepsShareNoPort) {
  int across = 0;
  for (const char* text : {"1x1", "1x4", "4x1", "2x2", "2x4", "4x2", "3x2", "3x4", "4x8"}) {
    const Topology topology = parse_topology(text);
    for (int ring = 1; ring <= topology.ranks(); ++ring) {
      if (topology.ranks() % ring != 0) continue;
      for (SpMode mode : {SpMode::usp, SpMode::tas}) {
        SCOPED_TRACE(fmt::format("{} {} ring {}", text, to_string(mode), ring));
        const SequenceMesh mesh = sequence_mesh(mode, topology, 64, {.ring = ring});
        std::map<int, int> on_machine;
        for (int r = 0; r < ring; ++r) ++on_machine[topology.machine_of(mesh.rank(0, 0, r))];
        const bool even = std::ranges::all_of(on_machine, [&](const auto& machine) {
          return machine.second == on_machine.begin()->second;
        });
        std::set<std::pair<int, int>> pairs;
        for (int step = 0; step < ring; ++step) {
          std::set<int> sources;
          std::set<LinkClass> links;
          for (int r = 0; r < ring; ++r) {
            const int rank = mesh.rank(0, 0, r),
                      source = mesh.ring_sources(rank)[static_cast<size_t>(step)];
            EXPECT_EQ(mesh.u(source), 0);
            sources.insert(source);
            pairs.insert({rank, source});
            links.insert(topology.link(rank, source));
            if (step == 0) {
              EXPECT_EQ(source, rank);
            }
          }
          EXPECT_EQ(sources.size(), static_cast<size_t>(ring));
          if (even) {
            EXPECT_EQ(links.size(), 1u) << "step " << step;
          }
          if (even && links.contains(LinkClass::cluster)) ++across;
        }
        EXPECT_EQ(pairs.size(), static_cast<size_t>(ring * ring));
      }
    }
  }
  EXPECT_GT(across, 20);
}

TEST(SequenceMesh, RefusesWithTheReason) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal(SpMode::torus, "2x2", 8, {.torus = 3, .ulysses = 1, .ring = 1}),
              HasSubstr("the degrees make up 3 ranks, there are 4"));
  EXPECT_THAT(refusal(SpMode::ulysses, "1x8", 3, {}), HasSubstr("8 head groups"));
  EXPECT_THAT(refusal(SpMode::tas, "2x2", 8, {.torus = 2, .ulysses = 2, .ring = 1}),
              HasSubstr("only torus attention has a torus axis"));
  EXPECT_THAT(refusal(SpMode::ring, "2x2", 8, {.ulysses = 2, .ring = 2}),
              HasSubstr("ring attention has no ulysses axis"));
  EXPECT_THAT(refusal(SpMode::ulysses, "2x2", 8, {.ulysses = 2, .ring = 2}),
              HasSubstr("ulysses attention has no ring axis"));
  for (SpMode mode : {SpMode::ring, SpMode::usp, SpMode::torus}) {
    for (const SpRequest& request :
         {SpRequest{.ring = 0}, SpRequest{.ulysses = 0}, SpRequest{.torus = -1},
          SpRequest{.torus = 1 << 30, .ulysses = 1 << 30, .ring = 4},
          SpRequest{.ring = std::numeric_limits<int>::min()}}) {
      EXPECT_THAT(refusal(mode, "2x2", 8, request), HasSubstr("on 2x2 ranks; wanted is 1 to 4"));
    }
  }
  EXPECT_THROW(parse_sp_mode("spiral"), Error);
  EXPECT_EQ(parse_sp_mode("torus"), SpMode::torus);
}

TEST(SequenceLayout, HoldsEachPositionOnce) {
  for (int P = 1; P <= 9; ++P) {
    for (int64_t L : {0, 1, 5, 17, 64}) {
      for (const SequenceLayout& layout :
           {even_layout(L, P, 3), zigzag_layout(L, P, 3), even_zigzag_layout(L, P, 3)}) {
        std::vector<int> seen(static_cast<size_t>(L), 0);
        for (int rank = 0; rank < P; ++rank) {
          for (const SequenceRun& run : layout.ranks[static_cast<size_t>(rank)]) {
            for (int64_t i = 0; i < run.rows; ++i)
              ++seen.at(static_cast<size_t>(run.position + i - 3));
          }
        }
        EXPECT_TRUE(std::ranges::all_of(seen, [](int n) { return n == 1; }));
        EXPECT_EQ(layout.length(), L);
      }
    }
  }
}

// Causal pairs of the fullest rank over the mean: 1 with zigzag where lengths divide.
TEST(SequenceLayout, ZigzagBalancesCausalAttention) {
  const int P = 8;
  const int64_t L = 160;
  const auto pairs = [&](const SequenceLayout& layout, int rank) {
    int64_t n = 0;
    for (const SequenceRun& run : layout.ranks[static_cast<size_t>(rank)]) {
      for (int64_t i = 0; i < run.rows; ++i) n += run.position + i + 1;
    }
    return n;
  };
  const SequenceLayout zigzag = zigzag_layout(L, P), even = even_layout(L, P);
  for (int rank = 0; rank < P; ++rank) EXPECT_EQ(pairs(zigzag, rank), L * (L + 1) / 2 / P);
  const SequenceLayout same = even_zigzag_layout(L, P);
  for (int rank = 0; rank < P; ++rank) EXPECT_EQ(pairs(same, rank), pairs(zigzag, rank));
  EXPECT_GT(pairs(even, P - 1), 10 * pairs(even, 0));
}

// Rows as even_part has them whatever the length, and no rank has more pairs than the mean by more
// than its last row.
TEST(SequenceLayout, EvenZigzagIsEvenAndBalanced) {
  for (int P = 1; P <= 9; ++P) {
    for (int64_t L : {1, 5, 17, 64, 101}) {
      const SequenceLayout layout = even_zigzag_layout(L, P);
      for (int rank = 0; rank < P; ++rank) {
        EXPECT_EQ(layout.rows(rank), even_part(L, P, rank).size());
        int64_t pairs = 0;
        for (const SequenceRun& run : layout.ranks[static_cast<size_t>(rank)]) {
          for (int64_t i = 0; i < run.rows; ++i) pairs += run.position + i + 1;
        }
        EXPECT_LE(pairs, L * (L + 1) / 2 / P + 2 * L) << P << " ranks, " << L;
      }
    }
  }
}

TEST(LowerAttention, RefusesWhatDoesNotFit) {
  const Topology topology = parse_topology("1x4");
  SequenceAttention a{.q_heads = 8, .kv_heads = 8, .head_dim = 4};
  a.q = a.kv = even_layout(16, 4);
  const SequenceMesh mesh = sequence_mesh(SpMode::ulysses, topology, 8);
  EXPECT_NO_THROW(attention_programs(a, mesh));
  SequenceAttention other = a;
  other.kv = even_layout(16, 3);
  EXPECT_THROW(attention_programs(other, mesh), Error);
  other = a;
  other.kv_heads = 3;
  EXPECT_THROW(attention_programs(other, mesh), Error);
  other = a;
  other.q_heads = other.kv_heads = 2;
  EXPECT_THROW(attention_programs(other, mesh), Error);
}

}  // namespace
}  // namespace braid
