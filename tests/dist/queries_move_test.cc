// Few queries that go to many keys: what one rank would compute, wherever keys lie, and the bytes
// that the choice counts.
#include "braid/ops/attention_state.h"
#include "braid/parallel/attention/queries.h"
#include "dist/sequence_world.h"

namespace braid::testing_sp {
namespace {

// New tokens behind keys that lie on ranks in some way.
struct Turn {
  const char* name;
  int64_t cached, tokens;
  enum Place { even, zigzag, by_turns, last_rank, uneven } place = even;
  int64_t heads = 6, kv_heads = 2, D = 8;
  int64_t left = -1;  // of a window
};

SequenceLayout place_keys(const Turn& turn, int P) {
  std::vector<int64_t> lengths(static_cast<size_t>(P));
  switch (turn.place) {
    case Turn::even:
      return even_layout(turn.cached, P);
    case Turn::zigzag:
      return zigzag_layout(turn.cached, P);
    case Turn::last_rank:
      lengths.back() = turn.cached;
      return contiguous_layout(lengths);
    case Turn::uneven:
      return contiguous_layout(fabric::uneven_parts(7, P, turn.cached));
    case Turn::by_turns:
      break;
  }
  // A prompt, then single keys as steps of one token leave these.
  SequenceLayout layout = even_layout(turn.cached / 2, P);
  for (int64_t at = turn.cached / 2; at < turn.cached; ++at) {
    layout.ranks[static_cast<size_t>(at % P)].push_back({at, 1});
  }
  return layout;
}

SequenceAttention attention_of(const Turn& turn, int P, bool uneven_queries) {
  SequenceAttention a{
      .q_heads = turn.heads,
      .kv_heads = turn.kv_heads,
      .head_dim = turn.D,
      .scale = 1 / std::sqrt(static_cast<float>(turn.D)),
      .window_left = turn.left,
      .window_right = 0,
      .q = uneven_queries ? contiguous_layout(fabric::uneven_parts(3, P, turn.tokens), turn.cached)
                          : even_zigzag_layout(turn.tokens, P, turn.cached),
      .kv = place_keys(turn, P)};
  for (size_t r = 0; r < a.kv.ranks.size(); ++r) {
    a.kv.ranks[r].insert(a.kv.ranks[r].end(), a.q.ranks[r].begin(), a.q.ranks[r].end());
  }
  return a;
}

const Turn kTurns[] = {
    {.name = "few", .cached = 95, .tokens = 7},
    {.name = "zigzag", .cached = 200, .tokens = 13, .place = Turn::zigzag},
    {.name = "by turns", .cached = 121, .tokens = 9, .place = Turn::by_turns},
    {.name = "on one rank", .cached = 77, .tokens = 5, .place = Turn::last_rank},
    {.name = "uneven, mha",
     .cached = 150,
     .tokens = 11,
     .place = Turn::uneven,
     .heads = 3,
     .kv_heads = 3,
     .D = 12},
    {.name = "window", .cached = 99, .tokens = 8, .place = Turn::zigzag, .left = 20},
    {.name = "window by turns", .cached = 90, .tokens = 6, .place = Turn::by_turns, .left = 31},
    {.name = "fewer than ranks", .cached = 64, .tokens = 2, .heads = 9, .kv_heads = 1},
    {.name = "parts of keys", .cached = 3000, .tokens = 3, .place = Turn::zigzag, .heads = 2},
};

bool goes_to_keys(const SequenceAttention& a, const SequenceMesh& mesh) {
  return moves_queries(attention_programs(a, mesh, {.queries = true})[0]);
}

TEST(QueriesMove, EqualsOneRank) {
  size_t number = 0;
  for (const Turn& turn : kTurns) {
    for (int P = 2; P <= 8; ++P) {
      for (bool uneven : {false, true}) {
        SCOPED_TRACE(fmt::format("{} on {} ranks, uneven queries {}", turn.name, P, uneven));
        const SequenceAttention a = attention_of(turn, P, uneven);
        const SequenceMesh mesh = sequence_mesh(
            SpMode::ring,
            Topology{.machines = P % 2 == 0 ? 2 : 1, .devices = P % 2 == 0 ? P / 2 : P},
            turn.heads);
        ASSERT_TRUE(goes_to_keys(a, mesh));
        const WorldConfig config{.strategy = ++number % 3 == 0 ? "sequential" : "sequence_parallel",
                                 .threads = 1 + static_cast<int>(number % 2),
                                 .steps = 2,
                                 .queries = true};
        const WorldResult got = run_world(a, mesh, config);
        expect_exact(a, got, config.seed + 1);
        if (HasFatalFailure()) return;
        int64_t moved = 0;  // between ranks: rows for a rank itself take no link
        for (const auto& rank : got.traffic) {
          moved += bytes(rank, LinkClass::machine) + bytes(rank, LinkClass::cluster);
        }
        EXPECT_EQ(moved, moved_bytes(a, mesh).queries);
      }
    }
  }
}

// The choice: by bytes, for whole steps behind keys alone.
TEST(QueriesMove, WhereTheyAreFewerBytes) {
  const SequenceMesh ring = sequence_mesh(SpMode::ring, Topology{.machines = 1, .devices = 4}, 32);
  const auto turn = [](int64_t cached, int64_t tokens) {
    SequenceAttention a = attention_of(
        {.cached = cached, .tokens = tokens, .heads = 32, .kv_heads = 8, .D = 128}, 4, false);
    a.dtype = DType::bf16;
    return a;
  };
  // n 3 32 (256 + 520) against 3 (c + n) 2 8 256.
  const SequenceAttention few = turn(131072, 256);
  EXPECT_EQ(moved_bytes(few, ring).queries, 256 * 3 * 32 * 776);
  EXPECT_EQ(moved_bytes(few, ring).keys, 131328 * 3 * 2 * 8 * 256);
  EXPECT_TRUE(queries_move(few, ring));
  EXPECT_TRUE(queries_move(turn(131072, 25890), ring));
  EXPECT_FALSE(queries_move(turn(131072, 25891), ring));
  EXPECT_FALSE(queries_move(turn(0, 4096), ring));
  // Ulysses moves fewer bytes than a ring, so queries have fewer to save.
  const SequenceMesh heads =
      sequence_mesh(SpMode::ulysses, Topology{.machines = 1, .devices = 4}, 32);
  EXPECT_TRUE(queries_move(few, heads));
  EXPECT_FALSE(queries_move(turn(131072, 25888), heads));
  SequenceAttention other = few;
  other.window_right = -1;
  EXPECT_FALSE(queries_move(other, ring));
  other = few;
  other.joint_kv = 3;
  EXPECT_FALSE(queries_move(other, ring));
  other = few;
  other.q.ranks[1].pop_back();  // a row between others is no query
  EXPECT_FALSE(queries_move(other, ring));
}

}  // namespace
}  // namespace braid::testing_sp
