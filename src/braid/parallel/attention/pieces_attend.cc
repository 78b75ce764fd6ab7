// Computation with pieces: places of rows, and calls over rows.
#include <algorithm>
#include <array>
#include <utility>

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

// Cuts segments where a dual chunk of keys ends.
std::vector<ops::KvSegment> cut_at_chunks(const std::vector<ops::KvSegment>& segments,
                                          const ops::DualChunks& dual) {
  std::vector<ops::KvSegment> cut;
  for (ops::KvSegment left : segments) {
    while (left.rows > 0) {
      ops::KvSegment& part = cut.emplace_back(left);
      part.rows = std::min(left.rows, dual.chunk_end(left.position) - left.position);
      left.row += part.rows, left.position += part.rows, left.rows -= part.rows;
    }
  }
  return cut;
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
  for (const SequenceRun& run : layout.ranks[owner]) {
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
  Chunk chunk(world());
  for (int x = 0; x < world(); ++x) {
    auto& pieces = chunk[x];
    if (k == 0) append(pieces, a_.q, x, &q_, nullptr, 0, q_heads(x).begin);
    int64_t row = 0;
    for (int source : sources(x, k)) row = append(pieces, a_.q, source, buffer, nullptr, row, 0);
  }
  return chunk;
}

Chunk AttentionPieces::kv_chunk(int k, const KvBuffer& buffer, KeyPart part) const {
  Chunk chunk(world());
  for (int x = 0; x < world(); ++x) {
    auto& pieces = chunk[x];
    if (k == 0) append(pieces, a_.kv, x, &k_, &v_, 0, kv_heads(x).begin);
    int64_t row = 0;
    for (int source : sources(x, k)) {
      row = append(pieces, a_.kv, source, buffer.k, buffer.v, row, 0, part);
    }
  }
  return chunk;
}

Chunk AttentionPieces::ring_chunk(int k, int i, const KvBuffer& buffer, KeyPart part) const {
  Chunk chunk(world());
  for (int x = 0; x < world(); ++x) {
    auto& pieces = chunk[x];
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
  Chunk chunk(world());
  for (int x = 0; x < world() && a_.joint_q > 0; ++x) {
    const Range rows = joint_rows(x);
    chunk[x].push_back({.in = &joint_q_,
                        .row = rows.begin,
                        .head = q_heads(x).begin,
                        .rows = rows.size(),
                        .position = rows.begin,
                        .owner_row = rows.begin});
  }
  return chunk;
}

Chunk AttentionPieces::joint_kv_chunk() const {
  Chunk chunk(world());
  for (int x = 0; x < world() && a_.joint_kv > 0; ++x) {
    chunk[x].push_back(
        {.in = &joint_k_, .in_v = &joint_v_, .head = kv_heads(x).begin, .rows = a_.joint_kv});
  }
  return chunk;
}

// Neighbours form a single segment unless something tells their rows apart.
bool AttentionPieces::kept_apart(const Piece& a, const Piece& b) const {
  return a.in != b.in || a.row + a.rows != b.row || a.head != b.head || a.phase != b.phase ||
         a.part != b.part || (a_.masked() && a.position + a.rows != b.position);
}

// The KV segments of a rank; their pairs are numbered by `keys`.
std::vector<ops::KvSegment> AttentionPieces::kv_segments(const Chunks& chunks, int rank,
                                                         Buffers& keys) const {
  std::vector<ops::KvSegment> segments;
  const Piece* last = nullptr;
  for (const Chunk* chunk : chunks) {
    for (const Piece& piece : (*chunk)[rank]) {
      if (piece.rows == 0) continue;
      if (last != nullptr && !kept_apart(*last, piece)) {
        segments.back().rows += piece.rows;
      } else {
        segments.push_back({.kv = index_of(keys, piece.in),
                            .row = piece.row,
                            .head = piece.head,
                            .rows = piece.rows,
                            .position = piece.position,
                            .phase = piece.phase});
      }
      last = &piece;
    }
  }
  return a_.dual ? cut_at_chunks(segments, *a_.dual) : segments;
}

// The Q segments of a rank; each sees all `num_kv` KV segments.
std::vector<QSegment> AttentionPieces::q_segments(const Chunks& chunks, int rank, Buffers& queries,
                                                  int num_kv, bool sends_part) const {
  std::vector<QSegment> segments;
  int64_t send_row = 0, rest_row = 0;
  for (const Chunk* chunk : chunks) {
    const Piece* last = nullptr;
    for (const Piece& piece : (*chunk)[rank]) {
      if (piece.rows == 0) continue;
      QSegment segment{.q = index_of(queries, piece.in),
                       .row = piece.row,
                       .head = piece.head,
                       .rows = piece.rows,
                       .position = piece.position,
                       .out = goes_to(piece, rank),
                       .out_row = piece.owner_row,
                       .out_head = q_heads(rank).begin,
                       .kv_end = num_kv,
                       .phase = piece.phase,
                       .part = piece.part};
      if (segment.out == QSegment::Out::send) {
        if (sends_part && piece.part == kLastPart) segment.out = QSegment::Out::rest;
        int64_t& row = segment.out == QSegment::Out::rest ? rest_row : send_row;
        segment.out_row = std::exchange(row, row + piece.rows);
        segment.out_head = 0;
      } else if (segment.out == QSegment::Out::o && piece.owner != rank) {
        segment.owner = piece.owner;
      }
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

AttentionPieces::Sent AttentionPieces::attend(const Chunks& q, const Chunks& kv,
                                              const Results& results) {
  Buffers queries, keys, values;
  std::array<std::vector<int64_t>, 2> to_send;  // [parts before the last, the last][ranks]
  for (auto& rows : to_send) rows.resize(world());
  std::array<bool, 2> others{};
  bool joint = false, stored = false;
  for_each_piece(q, [&](int x, const Piece& piece) {
    index_of(queries, piece.in);
    const QSegment::Out out = goes_to(piece, x);
    joint = joint || out == QSegment::Out::joint;
    stored = stored || out == QSegment::Out::o;
    const size_t later = piece.part == kLastPart ? 1 : 0;
    others[later] = others[later] || (piece.owner >= 0 && piece.owner != x);
    if (out == QSegment::Out::send) to_send[later][x] += piece.rows;
  });
  for_each_piece(kv, [&](int, const Piece& piece) {
    index_of(keys, piece.in);
    index_of(values, piece.in_v);
  });
  BRAID_CHECK(keys.size() == values.size());
  if (queries.empty()) queries.push_back(&q_);
  // A single row if all rows are stored: the push still follows.
  const auto buffer = [&](size_t later) {
    if (!others[later]) return kNoValue;
    ValueType type = q_buffer(0);
    type.shape[1] = std::max<int64_t>(std::ranges::max(to_send[later]), 1);
    return buffers("sent", {type})[0];
  };
  const bool sends_part = std::ranges::max(to_send[0]) > 0;
  const int64_t heads = most([&](int x) { return q_heads(x).size(); });
  std::vector<ValueId> inputs =
      buffers("states", {{DType::f32, {a_.batch, 1, heads, a_.head_dim}, BatchAxis::sequence},
                         {DType::f32, {a_.batch, 1, heads}, BatchAxis::sequence},
                         {DType::f32, {a_.batch, 1, heads}, BatchAxis::sequence}});
  const Sent sent{.send = buffer(sends_part ? 0 : 1), .rest = sends_part ? buffer(1) : kNoValue};
  // A call without queries names the result, too: the sync that closes the result then follows the
  // pulls of the keys.
  const bool names_o = stored || (!joint && !others[0] && !others[1]);
  inputs.insert(inputs.end(), {names_o ? results.o : kNoValue, sent.send,
                               joint ? results.joint_o : kNoValue, sent.rest});
  for (const Buffer* q : queries) inputs.push_back(q->value);
  for (size_t i = 0; i < keys.size(); ++i) {
    inputs.insert(inputs.end(), {keys[i]->value, values[i]->value});
  }
  emit(ops::kSegmentAttention, inputs, "", [&](int x) {
    const Range heads = q_heads(x);
    ops::SegmentAttentionAttrs attrs{.heads = heads.size(),
                                     .kv_heads = kv_heads(x).size(),
                                     .group = a_.group(),
                                     .head_offset = heads.begin % a_.group(),
                                     .scale = a_.scale,
                                     .window_left = a_.window_left,
                                     .window_right = a_.window_right,
                                     .num_q = static_cast<int>(queries.size()),
                                     .q = {},
                                     .kv = kv_segments(kv, x, keys),
                                     .dual = a_.dual};
    attrs.q = q_segments(q, x, queries, static_cast<int>(attrs.kv.size()), sends_part);
    return Attrs::of(attrs);
  });
  return sent;
}

Chunk at_phase(Chunk chunk, const Buffer* buffer, int phase) {
  for (std::vector<Piece>& pieces : chunk) {
    for (Piece& piece : pieces) {
      if (piece.in == buffer) piece.phase = phase;
    }
  }
  return chunk;
}

Chunk in_part(Chunk chunk, int part) {
  for (std::vector<Piece>& pieces : chunk) {
    for (Piece& piece : pieces) piece.part = part;
  }
  return chunk;
}

int64_t AttentionPieces::num_segments(const Chunks& kv) const {
  Buffers keys;
  return most([&](int x) { return std::ssize(kv_segments(kv, x, keys)); });
}

bool AttentionPieces::sends(const Chunks& q) const {
  bool sends = false;
  for_each_piece(q, [&](int x, const Piece& piece) {
    sends = sends || goes_to(piece, x) == QSegment::Out::send;
  });
  return sends;
}

}  // namespace braid
