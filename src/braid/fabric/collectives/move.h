#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "braid/backend/cpu/team.h"
#include "braid/fabric/collectives/share.h"
#include "braid/fabric/comm.h"

// Shared by the collectives that only move bytes.
namespace braid::fabric {

// A matrix in memory, rows stride bytes apart; its bytes are numbered row by row without the gaps.
template <class T>
struct Piece {
  T* data = nullptr;  // [rows, row_bytes]
  int64_t row_bytes = 0;
  int64_t rows = 1;
  int64_t stride = 0;
  int64_t bytes() const { return row_bytes * rows; }
};

// Cuts bytes [range.begin, range.end) of a piece into runs of equal rows: fn(first byte, rows,
// row_bytes, bytes before it in the range). At most three: a row's tail, whole rows, a row's head.
template <class T, class Fn>
void for_each_run(const Piece<T>& piece, Range range, Fn&& fn) {
  if (range.empty()) return;
  if (piece.stride == piece.row_bytes || piece.rows == 1) {
    fn(piece.data + range.begin, int64_t{1}, range.size(), int64_t{0});
    return;
  }
  int64_t at = range.begin;
  while (at < range.end) {
    const int64_t row = at / piece.row_bytes;
    const int64_t column = at % piece.row_bytes;
    T* const first = piece.data + row * piece.stride + column;
    const int64_t rows = column == 0 ? (range.end - at) / piece.row_bytes : 0;
    const int64_t row_bytes =
        rows > 0 ? piece.row_bytes : std::min(piece.row_bytes - column, range.end - at);
    fn(first, std::max<int64_t>(rows, 1), row_bytes, at - range.begin);
    at += std::max<int64_t>(rows, 1) * row_bytes;
  }
}

inline void put_range(Exchange& exchange, int peer, const Piece<const std::byte>& piece,
                      Range range) {
  for_each_run(piece, range,
               [&](const std::byte* src, int64_t rows, int64_t row_bytes, int64_t at) {
                 exchange.put(peer, at, src,
                              {.row_bytes = row_bytes,
                               .rows = rows,
                               .dst_stride = row_bytes,
                               .src_stride = piece.stride});
               });
}

// Bytes `range` of piece = packed.
inline void unpack_range(const Piece<std::byte>& piece, Range range, const std::byte* packed) {
  for_each_run(piece, range, [&](std::byte* dst, int64_t rows, int64_t row_bytes, int64_t at) {
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(dst + r * piece.stride, packed + at + r * row_bytes, row_bytes);
    }
  });
}

// Copies bytes `range` of src to dst; nothing if both are the same memory.
inline void copy_range(const Piece<std::byte>& dst, const Piece<const std::byte>& src,
                       Range range) {
  if (dst.data == src.data) return;
  for_each_run(src, range, [&](const std::byte* from, int64_t rows, int64_t row_bytes, int64_t at) {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t begin = range.begin + at + r * row_bytes;
      unpack_range(dst, {begin, begin + row_bytes}, from + r * src.stride);
    }
  });
}

// Rank p's to(q) arrives as rank q's from(p), for all p, q: equal bytes at both ends, at most
// `largest` for p != q. All pieces of a rank's `from` are disjoint from the pieces of its `to`,
// except that its own piece may be the same memory.
template <class To, class From>
void move_pieces(Comm& comm, const cpu::Team& team, Tag tag, int64_t largest, To&& to,
                 From&& from) {
  const int lanes = lanes_for(largest, comm.lanes());
  const int64_t slot = comm.slot_bytes();
  for (int lane = team.index; lane < lanes; lane += team.count) {
    Exchange exchange(comm, lane, tag);
    const auto part = [&](int64_t bytes, int64_t round) {
      return round_part(line_part(bytes, lanes, lane), round, slot);
    };
    const auto send = [&](int64_t round) {
      exchange.send([&](int peer) {
        const Piece<const std::byte> piece = to(peer);
        put_range(exchange, peer, piece, part(piece.bytes(), round));
      });
    };
    const int64_t rounds =
        comm.size() == 1 ? 0 : ceil_div(line_part(largest, lanes, lane).size(), slot);
    if (rounds > 0) send(0);
    const Piece<const std::byte> own = to(comm.index());
    copy_range(from(comm.index()), own, line_part(own.bytes(), lanes, lane));
    for (int64_t round = 0; round < rounds; ++round) {
      if (round + 1 < rounds) send(round + 1);
      exchange.take([&](int peer, const std::byte* data) {
        const Piece<std::byte> piece = from(peer);
        unpack_range(piece, part(piece.bytes(), round), data);
      });
    }
    exchange.settle();
  }
}

}  // namespace braid::fabric
