// Which launches are a handover of few rows, by the ops alone.
#include "braid/kernels/cuda/comm/handover_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "braid/ops/attention_state.h"
#include "braid/ops/one_sided.h"
#include "braid/ops/sequence.h"
#include "braid/program/builder.h"

namespace braid::cuda {
namespace {

constexpr int64_t kHeads = 4, kD = 64;

struct Case {
  int64_t rows = 1;                        // of each of two ranks
  DType dtype = DType::f32;                // of states, or of k and v
  std::vector<int64_t> arrivals = {1, 1};  // awaited by rank 0
  int64_t own = 0;                         // rows of the rank's own
  bool other_own = false;                  // which are not what is pushed
  bool sends = true;
  bool other_counters = false;  // the sync waits for another push
  bool meets = false;           // the sync meets the other rank
  int64_t state = kD + 2;       // columns
  int64_t heads = kHeads;
};

ValueType rows_of(const Case& c, int64_t rows, int64_t columns) {
  return {c.dtype, {1, rows, c.heads, columns}, BatchAxis::sequence};
}

// Rank 0's push, sync and merge_states, or kv_write.
Program program_of(const Case& c, bool keeps) {
  Builder b("handover", {.sequence = 1, .shard = c.rows});
  const int64_t columns = keeps ? kD : c.state;
  const ValueId sent = b.input("sent", rows_of(c, 2 * c.rows + c.own, columns));
  const ValueId other = b.input("other", rows_of(c, 2 * c.rows + c.own, columns));
  const std::vector<ValueId> opened = b.op(
      ops::kSync,
      Attrs::of(ops::SyncAttrs{
          .axis = "world",
          .group = {0, 1},
          .arrivals = {},
          .opens = {ops::arrivals_type(2), ops::arrivals_type(2), rows_of(c, 2 * c.rows, columns)},
          .opened_arrivals = {0, 1}}),
      ops::sync_inputs({sent}));
  std::vector<ops::Move> moves;
  for (int peer = c.sends ? 1 : -1; peer >= 0; --peer) {
    moves.push_back({.peer = peer,
                     .src = 1,
                     .dst = 2,
                     .rows = c.rows,
                     .src_row = peer * c.rows,
                     .heads = c.heads});
  }
  b.op(ops::kPush, Attrs::of(ops::MoveAttrs{.rank = 0, .moves = moves, .told = {}}),
       {opened[0], sent, opened[2]});
  ops::SyncAttrs wait{
      .axis = "", .group = {}, .arrivals = c.arrivals, .opens = {}, .opened_arrivals = {}};
  if (c.meets) wait.axis = "world", wait.group = {0, 1};
  b.op(ops::kSync, Attrs::of(wait),
       ops::sync_inputs({sent}, {opened[2]}, opened[c.other_counters ? 1 : 0]));
  if (!keeps) {
    std::vector<ValueId> states{opened[2]};
    if (c.own > 0) states.push_back(c.other_own ? other : sent);
    return b.finish(
        {b.op1(ops::kMergeStates, Attrs::of(ops::MergeStatesAttrs{2, DType::bf16}), states)});
  }
  const ValueType cache{c.dtype, {3, 16, c.heads, kD}, BatchAxis::none};
  const ValueId slots = b.input("slots", {DType::i32, {2 * c.rows}, BatchAxis::none});
  b.op(ops::kKvWrite, {}, {opened[2], opened[2], slots, b.state("k", cache), b.state("v", cache)});
  return b.finish({});
}

int ranks_of(const Program& program, size_t first = 1, size_t count = 3) {
  std::vector<const Op*> ops;
  for (const Op& op : program.ops) ops.push_back(&op);
  return handover_ranks(program, {.ops = std::span(ops).subspan(first, count)});
}

TEST(HandoverRun, OfStatesAndOfKeys) {
  EXPECT_EQ(ranks_of(program_of({}, false)), 2);
  EXPECT_EQ(ranks_of(program_of({.own = 2}, false)), 2);
  EXPECT_EQ(ranks_of(program_of({.rows = 40, .dtype = DType::bf16}, true)), 2);
  EXPECT_EQ(ranks_of(program_of({.sends = false}, true)), 2) << "a rank without rows";
}

// CTAs: 16 KiB of a piece, or a row of the last op for each of four warps; at most one an SM.
TEST(HandoverRun, Ctas) {
  const auto text = [](const HandoverConfig& c) {
    return fmt::format("{} of {} CTAs store", c.pushers, c.ctas);
  };
  EXPECT_EQ(text(choose_handover(2, 16 << 10, 32, 132)), "2 of 8 CTAs store");
  EXPECT_EQ(text(choose_handover(2, 20 << 10, 288, 132)), "4 of 72 CTAs store");
  EXPECT_EQ(text(choose_handover(9, 64 << 10, 20, 132)), "36 of 36 CTAs store");
  EXPECT_EQ(text(choose_handover(9, 64 << 10, 20, 26)), "26 of 26 CTAs store");
  EXPECT_EQ(text(choose_handover(0, 0, 1, 132)), "0 of 1 CTAs store");
  for (int pieces : {1, 3, 9, 48}) {
    for (int pushers : {1, 2, 9, 26, 132}) {
      int shares = 0;
      for (int i = 0; i < pieces; ++i) shares += shares_of_piece(i, pieces, pushers);
      EXPECT_EQ(shares, std::max(pieces, pushers));
    }
  }
}

TEST(HandoverRun, OtherLaunchesStayApart) {
  const auto apart = [](const Case& c, bool keeps) { return ranks_of(program_of(c, keeps)) == 0; };
  EXPECT_TRUE(apart({.rows = 300}, false)) << "many bytes";
  EXPECT_TRUE(apart({.other_counters = true}, false));
  EXPECT_TRUE(apart({.meets = true}, true));
  EXPECT_TRUE(apart({.heads = 1}, false)) << "rows of no 16-byte words";
  EXPECT_TRUE(apart({.arrivals = std::vector<int64_t>(16, 1)}, false)) << "many pieces";
  EXPECT_TRUE(apart({.own = 2, .other_own = true}, false)) << "results may lie on what is pushed";
  const Program program = program_of({}, false);
  EXPECT_EQ(ranks_of(program, 0), 0) << "a sync comes first";
  EXPECT_EQ(ranks_of(program, 1, 2), 0);
}

}  // namespace
}  // namespace braid::cuda
