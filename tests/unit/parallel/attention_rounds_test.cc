// Torus attention fills rounds of tiles with queries of another stage; ring and torus send a few
// rounds of queries ahead of all others.
#include <gtest/gtest.h>

#include <algorithm>

#include "braid/base/math.h"
#include "braid/ops/segment_attention.h"
#include "braid/parallel/attention/lower_attention.h"

namespace braid {
namespace {

SequenceAttention attention_of(int64_t tokens, int64_t text, int64_t heads, int ranks) {
  SequenceAttention a{.q_heads = heads, .kv_heads = heads, .head_dim = 64, .scale = 1};
  a.joint_q = a.joint_kv = text;
  a.q = a.kv = even_layout(tokens, ranks, text);
  return a;
}

std::vector<Program> programs_of(SequenceAttention a, const char* machines,
                                 SequenceAttention::Rounds rounds, SpMode mode = SpMode::torus) {
  a.rounds = rounds;
  return attention_programs(a, sequence_mesh(mode, parse_topology(machines), a.q_heads));
}

// Rounds of all calls of a rank, each weighed with the keys that a tile meets.
int64_t weighed_rounds(const Program& program, SequenceAttention::Rounds rounds) {
  int64_t sum = 0;
  for (const Op& op : program.ops) {
    if (op.def != &ops::kSegmentAttention) continue;
    const auto& attrs = op.attrs.as<ops::SegmentAttentionAttrs>();
    const int64_t tiles = attrs.row_tiles(rounds.rows) * attrs.heads;
    int64_t keys = 0;
    for (const ops::KvSegment& kv : attrs.kv) keys += kv.rows;
    sum += ceil_div(tiles, rounds.tiles) * keys;
  }
  return sum;
}

// (query, key) pairs of all calls of a rank, over all its heads.
int64_t pairs(const Program& program) {
  int64_t sum = 0;
  for (const Op& op : program.ops) {
    if (op.def != &ops::kSegmentAttention) continue;
    const auto& attrs = op.attrs.as<ops::SegmentAttentionAttrs>();
    for (const ops::QSegment& q : attrs.q) {
      for (int i = q.kv_begin; i < q.kv_end; ++i) {
        sum += q.rows * attrs.kv[static_cast<size_t>(i)].rows * attrs.heads;
      }
    }
  }
  return sum;
}

size_t calls(const Program& program) {
  return static_cast<size_t>(std::ranges::count(program.ops, &ops::kSegmentAttention,
                                                [](const Op& op) { return op.def; }));
}

// flux-3072 on two H200: four calls of 14 rounds become 12 + 15 + 15 + 12.
TEST(AttentionRounds, TwoRanksLoseNoRound) {
  const SequenceAttention a = attention_of(36864, 512, 24, 2);
  const SequenceAttention::Rounds rounds{.rows = 256, .tiles = 65};
  const int64_t own = 18432, with_text = own + 512;
  const Program plain = programs_of(a, "2x1", {})[0], filled = programs_of(a, "2x1", rounds)[0];
  EXPECT_EQ(weighed_rounds(plain, rounds), 28 * with_text + 28 * own);
  EXPECT_EQ(weighed_rounds(filled, rounds), 27 * with_text + 27 * own);
}

TEST(AttentionRounds, NeverMoreRoundsNorOtherWork) {
  int better = 0;
  for (const char* machines : {"2x1", "3x1", "2x2", "4x2", "3x4"}) {
    const int P = parse_topology(machines).ranks();
    for (int64_t tokens : {900, 3001, 20000}) {
      for (int64_t tiles : {7, 65, 130}) {
        const SequenceAttention a = attention_of(tokens, 70, 24, P);
        const SequenceAttention::Rounds rounds{.rows = 16, .tiles = tiles};
        const auto plain = programs_of(a, machines, {}), filled = programs_of(a, machines, rounds);
        for (size_t r = 0; r < plain.size(); ++r) {
          SCOPED_TRACE(
              fmt::format("{} tokens, {} tiles, rank {} of {}", tokens, tiles, r, machines));
          EXPECT_EQ(pairs(filled[r]), pairs(plain[r]));
          EXPECT_EQ(calls(filled[r]), calls(plain[r]));
          const int64_t before = weighed_rounds(plain[r], rounds);
          const int64_t after = weighed_rounds(filled[r], rounds);
          EXPECT_LE(after, before);
          better += after < before;
        }
      }
    }
  }
  EXPECT_GT(better, 50);
}

// flux-3072 on two H200: of the queries alone that go ahead a state is carried, from one call to
// one other, and no round is lost.
TEST(AttentionRounds, FewQueriesGoAhead) {
  const SequenceAttention a = attention_of(36864, 512, 24, 2);
  const SequenceAttention::Rounds rounds{.rows = 256, .tiles = 65, .ahead = 3};
  for (SpMode mode : {SpMode::ring, SpMode::torus}) {
    const Program program = programs_of(a, "2x1", rounds, mode)[0];
    const Program plain = programs_of(a, "2x1", {}, mode)[0];
    EXPECT_EQ(pairs(program), pairs(plain));
    EXPECT_EQ(calls(program), 3u);
    int64_t carried = 0;  // tiles whose state is stored
    for (const Op& op : program.ops) {
      if (op.def != &ops::kSegmentAttention) continue;
      const auto& attrs = op.attrs.as<ops::SegmentAttentionAttrs>();
      if (!attrs.finalize) carried += attrs.row_tiles(rounds.rows) * attrs.heads;
    }
    EXPECT_GT(carried, 2 * rounds.tiles) << to_string(mode);
    EXPECT_LE(carried, 3 * rounds.tiles) << to_string(mode);
    EXPECT_LE(weighed_rounds(program, rounds), weighed_rounds(plain, rounds));
  }
}

// Where all would go ahead, they go stage by stage.
TEST(AttentionRounds, AllQueriesAheadAreAsNone) {
  const SequenceAttention a = attention_of(3000, 70, 24, 2);
  for (SpMode mode : {SpMode::ring, SpMode::torus}) {
    const SequenceAttention::Rounds few{.rows = 16, .tiles = 65},
        many{.rows = 16, .tiles = 65, .ahead = 100};
    EXPECT_EQ(to_string(programs_of(a, "2x1", few, mode)[0]),
              to_string(programs_of(a, "2x1", many, mode)[0]));
  }
}

TEST(AttentionRounds, MasksAndOneTorusGroupAreLeftAlone) {
  SequenceAttention causal = attention_of(3000, 0, 24, 2);
  causal.window_right = 0;
  const SequenceAttention::Rounds rounds{.rows = 16, .tiles = 7, .ahead = 1};
  const auto same = [&](const SequenceAttention& a, const char* machines) {
    const Program x = programs_of(a, machines, {})[0], y = programs_of(a, machines, rounds)[0];
    ASSERT_EQ(x.ops.size(), y.ops.size());
    for (size_t i = 0; i < x.ops.size(); ++i) {
      EXPECT_EQ(to_string(x.ops[i].attrs), to_string(y.ops[i].attrs)) << machines;
    }
  };
  same(causal, "2x1");
  same(attention_of(3000, 10, 24, 4), "1x4");
}

}  // namespace
}  // namespace braid
