#include "braid/parallel/attention/queries.h"

#include <algorithm>
#include <iterator>

#include "braid/base/math.h"
#include "braid/ops/attention_state.h"
#include "braid/ops/one_sided.h"
#include "braid/ops/sequence.h"
#include "braid/parallel/attention/rank_builders.h"
#include "braid/parallel/attention/traffic.h"

namespace braid {
namespace {

using ops::KvSegment;
using ops::Move;
using ops::QSegment;

// Tiles of queries that keep a GPU busy, the rows of a tile, and the most parts of keys.
constexpr int64_t kBusyTiles = 128;
constexpr int64_t kTileRows = 128;
constexpr int64_t kMostParts = 8;

int64_t first_position(const SequenceLayout& layout) {
  int64_t first = -1;
  for (const auto& runs : layout.ranks) {
    for (const SequenceRun& run : runs) {
      if (first < 0 || run.position < first) first = run.position;
    }
  }
  return first;
}

// Calls fn(run, the run's first row on the rank).
template <class Fn>
void for_each_run(const SequenceLayout& layout, int rank, Fn&& fn) {
  int64_t row = 0;
  for (const SequenceRun& run : layout.ranks[rank]) {
    fn(run, row);
    row += run.rows;
  }
}

int parts_of_keys(const SequenceAttention& a, const AttentionDivision& division) {
  const int64_t tiles = ceil_div(a.q.length() * a.q_heads, kTileRows);
  const int64_t most = std::min(kMostParts, a.kv.max_rows() / division.least_rows);
  int64_t parts = 1;
  while (2 * parts <= most && tiles * parts < kBusyTiles) parts *= 2;
  return static_cast<int>(parts);
}

// A rank's keys, and the first segment of each of `parts` equal parts. Without a window, keys
// before all queries are seen by all: their positions among themselves do not count.
struct HeldSegments {
  std::vector<KvSegment> segments;
  std::vector<int> begin;  // [parts + 1]
};
HeldSegments held_segments(const SequenceAttention& a, int rank, int parts) {
  const int64_t first = first_position(a.q);
  std::vector<KvSegment> whole;
  for_each_run(a.kv, rank, [&](const SequenceRun& run, int64_t row) {
    const bool before = a.window_left < 0 && run.position + run.rows <= first;
    KvSegment* last = whole.empty() ? nullptr : &whole.back();
    if (last != nullptr && (last->position + last->rows == run.position ||
                            (before && last->position + last->rows <= first))) {
      last->rows += run.rows;
      if (before) last->position = first - last->rows;
      return;
    }
    whole.push_back({.row = row, .rows = run.rows, .position = run.position});
  });
  HeldSegments held;
  const int64_t rows = a.kv.rows(rank), part = round_up(ceil_div(rows, int64_t{parts}), kTileRows);
  for (int p = 0; p < parts; ++p) {
    held.begin.push_back(static_cast<int>(held.segments.size()));
    for (const KvSegment& s : whole) {
      const int64_t begin = std::max(s.row, p * part);
      const int64_t end = p + 1 < parts ? std::min(s.row + s.rows, (p + 1) * part) : s.row + s.rows;
      if (begin >= end) continue;
      held.segments.push_back(
          {.row = begin, .rows = end - begin, .position = s.position + begin - s.row});
    }
  }
  held.begin.push_back(static_cast<int>(held.segments.size()));
  return held;
}

// Moves between a rank's rows and the same rows of a value with all queries in order.
std::vector<Move> moves_of(const SequenceLayout& q, int rank, const Move& move, bool to_all) {
  std::vector<Move> moves;
  const int64_t first = first_position(q);
  for_each_run(q, rank, [&](const SequenceRun& run, int64_t row) {
    Move& made = moves.emplace_back(move);
    made.rows = run.rows;
    made.src_row = to_all ? row : run.position - first;
    made.dst_row += to_all ? run.position - first : row;
  });
  return moves;
}

}  // namespace

MovedBytes moved_bytes(const SequenceAttention& a, const SequenceMesh& mesh) {
  const int64_t state = bytes_of(DType::f32, a.head_dim + 2);
  MovedBytes bytes{.queries = a.batch * a.q.length() * (mesh.ranks() - 1) * a.q_heads *
                              (bytes_of(a.dtype, a.head_dim) + state)};
  for (const AttentionRows& rows : attention_rows(a, mesh)) bytes.keys += rows.bytes;
  return bytes;
}

bool queries_move(const SequenceAttention& a, const SequenceMesh& mesh) {
  if (mesh.ranks() == 1 || a.levels || a.dual || a.joint_q + a.joint_kv > 0) return false;
  const int64_t first = first_position(a.q);
  if (a.batch != 1 || a.window_right != 0 || first < 0) return false;
  for (const auto& runs : a.q.ranks) {
    for (const SequenceRun& run : runs) {
      if (run.position + run.rows > first + a.q.length()) return false;
    }
  }
  const auto [queries, keys] = moved_bytes(a, mesh);
  return queries < keys;
}

AttentionOutputs lower_queries(std::span<Builder> builders, const SequenceAttention& a,
                               const AttentionInputs& in, const AttentionDivision& division) {
  RankBuilders l(builders);
  const int P = l.ranks(), parts = parts_of_keys(a, division);
  const int64_t T = a.q.length(), H = a.q_heads, D = a.head_dim;
  const int64_t room = std::max<int64_t>(a.q.max_rows(), 1);
  const ValueId first = in.first == kNoValue ? in.q : in.first;
  const auto rows_of = [&](DType dtype, Shape shape) {
    return ValueType{dtype, std::move(shape), BatchAxis::sequence};
  };
  const std::vector<ValueId> opened =
      l.open(first, {ops::arrivals_type(P), ops::arrivals_type(P), rows_of(a.dtype, {1, T, H, D}),
                     rows_of(DType::f32, {1, P * room, H, D + 2})});
  const ValueId come = opened[0], back = opened[1], queries = opened[2], merged = opened[3];
  const auto to_peers = [&](int r, const auto& moves_to) {
    std::vector<Move> moves;
    for (int n = 0; n < P; ++n) std::ranges::copy(moves_to((r + n) % P), std::back_inserter(moves));
    return moves;
  };

  l.push("push_q", {come, in.q, queries}, [&](int r) {
    return to_peers(r, [&](int peer) {
      return moves_of(a.q, r, {.peer = peer, .src = 1, .dst = 2, .heads = H}, true);
    });
  });
  l.close("wait_q", first, come, 1, {queries}, [&](int from, int) { return a.q.rows(from) > 0; });
  const std::vector<ValueId> states = l.emit("attend.states", ops::kBuffers, {first}, [&](int) {
    return Attrs::of(ops::BuffersAttrs{{rows_of(DType::f32, {1, parts * T, H, D}),
                                        rows_of(DType::f32, {1, parts * T, H}),
                                        rows_of(DType::f32, {1, parts * T, H})}});
  });
  std::vector<ValueId> inputs = states;
  inputs.resize(ops::SegmentAttentionAttrs::kFirstQ, kNoValue);
  inputs.insert(inputs.end(), {queries, in.k, in.v});
  l.emit("attend", ops::kSegmentAttention, inputs, [&](int r) {
    HeldSegments held = held_segments(a, r, parts);
    ops::SegmentAttentionAttrs attrs{.heads = H,
                                     .kv_heads = a.kv_heads,
                                     .group = a.group(),
                                     .scale = a.scale,
                                     .window_left = a.window_left,
                                     .window_right = a.window_right,
                                     .finalize = false,
                                     .q = {},
                                     .kv = std::move(held.segments),
                                     .dual = {}};
    for (int p = 0; p < parts; ++p) {
      attrs.q.push_back({.rows = T,
                         .position = first_position(a.q),
                         .state_row = p * T,
                         .kv_begin = held.begin[p],
                         .kv_end = held.begin[p + 1]});
    }
    return Attrs::of(attrs);
  });
  const ValueId packed =
      l.emit1("attend", ops::kPackStates, states, Attrs::of(ops::PackStatesAttrs{parts}));
  l.push("push_states", {back, packed, merged}, [&](int r) {
    return to_peers(r, [&](int owner) {
      const Move move{.peer = owner, .src = 1, .dst = 2, .dst_row = r * room, .heads = H};
      return moves_of(a.q, owner, move, false);
    });
  });
  l.close("wait_states", first, back, 1, {merged}, [&](int, int to) { return a.q.rows(to) > 0; });
  return {.o = l.emit1("merge", ops::kMergeStates, {merged},
                       Attrs::of(ops::MergeStatesAttrs{P, a.dtype, true}))};
}

bool moves_queries(const Program& program) {
  return std::ranges::find(program.ops, &ops::kPackStates, &Op::def) != program.ops.end();
}

std::string explain_moves(const Program& lowered, const TokenSharding& tokens) {
  SequenceAttention a{.q = tokens.q, .kv = tokens.kv};
  if (tokens.mesh.ranks() == 1 || a.kv.length() == a.q.length()) return {};
  for (const Op& op : lowered.ops) {
    const Shape* shape = op.outputs.empty() ? nullptr : &lowered.value(op.outputs[0]).type.shape;
    if (op.def == &ops::kKvRead) a.kv_heads = (*shape)[2];
    if (op.def != &ops::kToSequence) continue;
    a.q_heads = (*shape)[2], a.head_dim = (*shape)[3];
    a.dtype = lowered.value(op.outputs[0]).type.dtype;
  }
  const auto [by_queries, by_keys] = moved_bytes(a, tokens.mesh);
  return fmt::format("{} move: {:.1f} MB an attention as queries, {:.1f} as keys",
                     moves_queries(lowered) ? "queries" : "keys",
                     1e-6 * static_cast<double>(by_queries), 1e-6 * static_cast<double>(by_keys));
}

}  // namespace braid
