// Computation with pieces: places of rows, and calls over rows.
#include <algorithm>

#include "braid/ops/segment_attention.h"
#include "braid/parallel/attention/pieces.h"

namespace braid {
namespace {

using ops::QSegment;
using Chunks = std::vector<const Chunk*>;

// The index of a buffer in the list; a new buffer is appended.
int index_of(std::vector<const Buffer*>& list, const Buffer* buffer) {
  const auto it = std::ranges::find(list, buffer);
  if (it != list.end()) return static_cast<int>(it - list.begin());
  list.push_back(buffer);
  return static_cast<int>(list.size()) - 1;
}

int64_t rows_of(const std::vector<Piece>& pieces) {
  int64_t rows = 0;
  for (const Piece& piece : pieces) rows += piece.rows;
  return rows;
}

// Calls fn(rank, piece) for all pieces that have rows.
template <class Fn>
void for_each_piece(const Chunks& chunks, Fn&& fn) {
  for (const Chunk* chunk : chunks) {
    for (size_t x = 0; x < chunk->size(); ++x) {
      for (const Piece& piece : (*chunk)[x]) {
        if (piece.rows > 0) fn(static_cast<int>(x), piece);
      }
    }
  }
}

}  // namespace

QSegment::Out AttentionPieces::goes_to(const Piece& piece, int rank) const {
  if (piece.owner < 0) return QSegment::Out::joint;
  return piece.owner == rank || stores(rank, piece.owner) ? QSegment::Out::o : QSegment::Out::send;
}

int64_t AttentionPieces::append(std::vector<Piece>& pieces, const SequenceLayout& layout, int owner,
                                const Buffer* in, const Buffer* in_v, int64_t row, int64_t head,
                                KeyPart part) const {
  const Range wanted = part.of(layout.rows(owner));
  int64_t run_row = 0;  // of the owner's
  for (const SequenceRun& run : layout.ranks[static_cast<size_t>(owner)]) {
    const int64_t begin = std::max(run_row, wanted.begin);
    const int64_t end = std::min(run_row + run.rows, wanted.end);
    if (begin < end) {
      pieces.push_back({.in = in,
                        .in_v = in_v,
                        .row = row + begin - wanted.begin,
                        .head = head,
                        .rows = end - begin,
                        .position = run.position + begin - run_row,
                        .owner = owner,
                        .owner_row = begin});
    }
    run_row += run.rows;
  }
  return row + wanted.size();
}

Chunk AttentionPieces::q_chunk(int k, const Buffer* buffer) const {
  Chunk chunk(static_cast<size_t>(world()));
  for (int x = 0; x < world(); ++x) {
    auto& pieces = chunk[static_cast<size_t>(x)];
    if (k == 0) append(pieces, a_.q, x, &q_, nullptr, 0, q_heads(x).begin);
    int64_t row = 0;
    for (int source : sources(x, k)) row = append(pieces, a_.q, source, buffer, nullptr, row, 0);
  }
  return chunk;
}

Chunk AttentionPieces::kv_chunk(int k, const KvBuffer& buffer, KeyPart part) const {
  Chunk chunk(static_cast<size_t>(world()));
  for (int x = 0; x < world(); ++x) {
    auto& pieces = chunk[static_cast<size_t>(x)];
    if (k == 0) append(pieces, a_.kv, x, &k_, &v_, 0, kv_heads(x).begin);
    int64_t row = 0;
    for (int source : sources(x, k)) {
      row = append(pieces, a_.kv, source, buffer.k, buffer.v, row, 0, part);
    }
  }
  return chunk;
}

Chunk AttentionPieces::ring_chunk(int k, int i, const KvBuffer& buffer, KeyPart part) const {
  Chunk chunk(static_cast<size_t>(world()));
  for (int x = 0; x < world(); ++x) {
    auto& pieces = chunk[static_cast<size_t>(x)];
    const int peer = ring_source(x, i);
    int64_t row = 0;
    if (k == 0) row = append(pieces, a_.kv, peer, buffer.k, buffer.v, row, 0, part);
    for (int source : sources(peer, k)) {
      row = append(pieces, a_.kv, source, buffer.k, buffer.v, row, 0);
    }
  }
  return chunk;
}

Chunk AttentionPieces::joint_q_chunk() const {
  Chunk chunk(static_cast<size_t>(world()));
  for (int x = 0; x < world() && a_.joint_q > 0; ++x) {
    const Range rows = joint_rows(x);
    chunk[static_cast<size_t>(x)].push_back({.in = &joint_q_,
                                             .row = rows.begin,
                                             .head = q_heads(x).begin,
                                             .rows = rows.size(),
                                             .position = rows.begin,
                                             .owner_row = rows.begin});
  }
  return chunk;
}

Chunk AttentionPieces::joint_kv_chunk() const {
  Chunk chunk(static_cast<size_t>(world()));
  for (int x = 0; x < world() && a_.joint_kv > 0; ++x) {
    chunk[static_cast<size_t>(x)].push_back(
        {.in = &joint_k_, .in_v = &joint_v_, .head = kv_heads(x).begin, .rows = a_.joint_kv});
  }
  return chunk;
}

void AttentionPieces::begin_states(const std::vector<const Chunk*>& chunks) {
  int64_t rows = 0;
  state_row_.clear();
  for (const Chunk* chunk : chunks) {
    state_row_.emplace_back(chunk, rows);
    const auto size = [&](int x) { return rows_of((*chunk)[static_cast<size_t>(x)]); };
    int64_t largest = 0;
    for (int x = 0; x < world(); ++x) largest = std::max(largest, size(x));
    rows += largest;
  }
  rows = std::max<int64_t>(rows, 1);
  const int64_t heads = most([&](int x) { return q_heads(x).size(); });
  const auto made =
      buffers({{DType::f32, {a_.batch, rows, heads, a_.head_dim}, BatchAxis::sequence},
               {DType::f32, {a_.batch, rows, heads}, BatchAxis::sequence},
               {DType::f32, {a_.batch, rows, heads}, BatchAxis::sequence}});
  state_o_ = made[0], state_l_ = made[1], state_m_ = made[2];
}

// Neighbours form a single segment unless something tells their rows apart.
bool AttentionPieces::kept_apart(const Piece& a, const Piece& b) const {
  return a.in != b.in || a.row + a.rows != b.row || a.head != b.head || a.stage != b.stage ||
         a.early != b.early || (a_.masked() && a.position + a.rows != b.position);
}

// The KV segments of a rank; their pairs are numbered by `keys`.
std::vector<ops::KvSegment> AttentionPieces::kv_segments(const Chunks& chunks, int rank,
                                                         Buffers& keys) const {
  std::vector<ops::KvSegment> segments;
  const Piece* last = nullptr;
  for (const Chunk* chunk : chunks) {
    for (const Piece& piece : (*chunk)[static_cast<size_t>(rank)]) {
      if (piece.rows == 0) continue;
      if (last != nullptr && !kept_apart(*last, piece)) {
        segments.back().rows += piece.rows;
      } else {
        segments.push_back({.kv = index_of(keys, piece.in),
                            .row = piece.row,
                            .head = piece.head,
                            .rows = piece.rows,
                            .position = piece.position,
                            .stage = piece.stage});
      }
      last = &piece;
    }
  }
  return segments;
}

// The Q segments of a rank; each sees all `num_kv` KV segments.
std::vector<QSegment> AttentionPieces::q_segments(const Chunks& chunks, int rank, Buffers& queries,
                                                  int num_kv, bool whole) const {
  std::vector<QSegment> segments;
  int64_t send_row = 0;
  for (const Chunk* chunk : chunks) {
    const auto state =
        std::ranges::find(state_row_, chunk, &std::pair<const Chunk*, int64_t>::first);
    const bool has_state = state != state_row_.end();
    BRAID_CHECK(whole || has_state, "queries without a state");
    int64_t state_row = has_state ? state->second : 0;
    const Piece* last = nullptr;
    for (const Piece& piece : (*chunk)[static_cast<size_t>(rank)]) {
      if (piece.rows == 0) continue;
      QSegment segment{.q = index_of(queries, piece.in),
                       .row = piece.row,
                       .head = piece.head,
                       .rows = piece.rows,
                       .position = piece.position,
                       .state_row = state_row,
                       .out = goes_to(piece, rank),
                       .out_row = piece.owner_row,
                       .out_head = q_heads(rank).begin,
                       .kv_end = num_kv,
                       .stage = piece.stage,
                       .early = piece.early};
      if (segment.out == QSegment::Out::send) {
        segment.out_row = send_row;
        segment.out_head = 0;
        send_row += piece.rows;
      } else if (segment.out == QSegment::Out::o && piece.owner != rank) {
        segment.owner = piece.owner;
      }
      if (has_state) state_row += piece.rows;
      if (last != nullptr && !kept_apart(*last, piece) && segments.back().out == segment.out &&
          segments.back().owner == segment.owner &&
          segments.back().out_row + segments.back().rows == segment.out_row) {
        segments.back().rows += piece.rows;
      } else {
        segments.push_back(segment);
      }
      last = &piece;
    }
  }
  return segments;
}

ValueId AttentionPieces::attend(const Chunks& q, const Chunks& kv, bool first,
                                const Results* results) {
  Buffers queries, keys, values;
  std::vector<int64_t> to_send(static_cast<size_t>(world()));
  bool joint = false, stored = false, others = false;
  for_each_piece(q, [&](int x, const Piece& piece) {
    index_of(queries, piece.in);
    const QSegment::Out out = goes_to(piece, x);
    joint = joint || out == QSegment::Out::joint;
    stored = stored || out == QSegment::Out::o;
    others = others || (piece.owner >= 0 && piece.owner != x);
    if (out == QSegment::Out::send) to_send[static_cast<size_t>(x)] += piece.rows;
  });
  for_each_piece(kv, [&](int, const Piece& piece) {
    index_of(keys, piece.in);
    index_of(values, piece.in_v);
  });
  BRAID_CHECK(keys.size() == values.size());
  if (queries.empty()) queries.push_back(&q_);
  ValueId send = kNoValue;
  if (results != nullptr && others) {  // a single row if all are stored: the push still follows
    ValueType type = q_buffer(0);
    type.shape[1] = std::max<int64_t>(std::ranges::max(to_send), 1);
    send = buffers({type})[0];
  }
  // A call without queries names the result, too: the sync that closes the result then follows the
  // pulls of the keys.
  const bool names_o = stored || (!joint && !others);
  std::vector<ValueId> inputs{state_o_, state_l_,
                              state_m_, results != nullptr && names_o ? results->o : kNoValue,
                              send,     results != nullptr && joint ? results->joint_o : kNoValue};
  for (const Buffer* q : queries) inputs.push_back(q->value);
  for (size_t i = 0; i < keys.size(); ++i) {
    inputs.insert(inputs.end(), {keys[i]->value, values[i]->value});
  }
  emit(ops::kSegmentAttention, inputs, "", [&](int x) {
    return Attrs::of(attention_attrs(q, kv, x, first, results != nullptr, queries, keys));
  });
  return send;
}

// Appends new buffers to the lists.
ops::SegmentAttentionAttrs AttentionPieces::attention_attrs(const Chunks& q, const Chunks& kv,
                                                            int rank, bool first, bool last,
                                                            Buffers& queries, Buffers& keys) const {
  const Range heads = q_heads(rank);
  ops::SegmentAttentionAttrs attrs{.heads = heads.size(),
                                   .kv_heads = kv_heads(rank).size(),
                                   .group = a_.group(),
                                   .head_offset = heads.begin % a_.group(),
                                   .scale = a_.scale,
                                   .window_left = a_.window_left,
                                   .window_right = a_.window_right,
                                   .load_state = !first,
                                   .finalize = last,
                                   .q = {},
                                   .kv = kv_segments(kv, rank, keys)};
  attrs.q = q_segments(q, rank, queries, static_cast<int>(attrs.kv.size()), first && last);
  attrs.num_q = static_cast<int>(queries.size());
  return attrs;
}

Chunk at_stage(Chunk chunk, const Buffer* buffer, int stage) {
  for (std::vector<Piece>& pieces : chunk) {
    for (Piece& piece : pieces) {
      if (piece.in == buffer) piece.stage = stage;
    }
  }
  return chunk;
}

std::vector<const Chunk*> pointers(std::vector<const Chunk*> first,
                                   const std::vector<Chunk>& chunks) {
  for (const Chunk& chunk : chunks) first.push_back(&chunk);
  return first;
}

Chunk early(Chunk chunk) {
  for (std::vector<Piece>& pieces : chunk) {
    for (Piece& piece : pieces) piece.early = true;
  }
  return chunk;
}

bool AttentionPieces::waits_inside(const Chunks& q, const Chunks& kv) const {
  const auto& kernels = stages_.kernels;
  if (kernels.empty()) return false;
  for (int x = 0; x < world(); ++x) {
    Buffers queries, keys;
    const Op op{.def = &ops::kSegmentAttention,
                .attrs = Attrs::of(attention_attrs(q, kv, x, true, true, queries, keys))};
    std::vector<ValueType> in(ops::SegmentAttentionAttrs::kFirstQ);
    in.insert(in.end(), queries.size(), q_type(a_));
    in.insert(in.end(), 2 * keys.size(), kv_type(a_));
    if (!kernels[static_cast<size_t>(x) % kernels.size()]->waits_inside(op, in)) return false;
  }
  return true;
}

bool AttentionPieces::sends(const Chunks& q) const {
  bool sends = false;
  for_each_piece(q, [&](int x, const Piece& piece) {
    sends = sends || goes_to(piece, x) == QSegment::Out::send;
  });
  return sends;
}

}  // namespace braid
