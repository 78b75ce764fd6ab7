#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "braid/base/math.h"
#include "braid/tensor/dtype.h"

// The collectives between the GPUs of one machine, as data. P ranks of a group, r this one:
//   all_reduce      y_r[i] = sum_p x_p[i]
//   reduce_scatter  y_r[i] = sum_p x_p[begin_r + i]
//   all_gather      y_r[begin_p + i] = x_p[i]
//   all_to_all      y_r[p, i] = x_p[r, i]
// Sums are taken in f32 in the order of the ranks and rounded once: all ranks get the same bits.
namespace braid::cuda {

constexpr int kMaxCommRanks = 8;

enum class CollectiveOp : uint8_t { all_reduce, reduce_scatter, all_gather, all_to_all };
std::string_view to_string(CollectiveOp op);

// Equal on all ranks. [rows, cols] elements are the whole value: x for reduce_scatter, y for
// all_gather, x and y for all_reduce and all_to_all. Rank r has rows even_part(rows, P, r) of a
// divided value; all_to_all divides x and y alike, so rows is a multiple of P.
struct CollectiveDesc {
  CollectiveOp op = CollectiveOp::all_reduce;
  DType dtype = DType::bf16;  // bf16, f16 or f32; moves take any plain type
  int ranks = 1;              // P
  int64_t rows = 0;           // capacity, where live rows are read on the device
  int64_t cols = 0;
  bool live_rows = false;   // read on the device
  bool x_symmetric = true;  // in memory that peers can reach at the same offset
  bool y_symmetric = true;
  bool own_in_place = false;  // all_gather: x is this rank's part of y

  int64_t elems() const { return rows * cols; }
  int64_t bytes() const;
};
std::string to_string(const CollectiveDesc& desc);  // "all_reduce bf16 [8, 4096] P2"

// Throws kInvalidArgument or kUnsupported, naming the field, the value and the limit.
void verify(const CollectiveDesc& desc);

// How the direct all_reduce divides the elements over ranks: whole 16-byte units.
constexpr Range direct_part(int64_t elems, int64_t elems_per_unit, int ranks, int rank) {
  const Range units = even_part(ceil_div(elems, elems_per_unit), ranks, rank);
  const int64_t begin = units.begin * elems_per_unit;
  const int64_t end = units.end * elems_per_unit;
  return {begin < elems ? begin : elems, end < elems ? end : elems};
}

enum class CommAlgorithm : uint8_t {
  // Lines of 16 bytes, stored into a peer's staging memory, that signal their own arrival: by an
  // epoch, or (bare) by being filled. A single latency.
  line,
  // Loads from and stores to the peers' own x and y between two barriers of flags.
  direct,
  // Copy engines between two barriers of flags; only for moves with fixed sizes.
  copy_engine,
  // Between emulated machines: packed, carried through pinned host memory by copy engines, summed
  // or placed on arrival. Sizes are fixed: capacities in place of live rows.
  staged,
};
std::string_view to_string(CommAlgorithm algorithm);

// Payload bytes that rank `rank` moves to or from `peer`: a put counts at the sender, a get at the
// reader. Line overhead and flags are not payload.
struct CommVolume {
  int64_t put = 0;
  int64_t get = 0;
  bool operator==(const CommVolume&) const = default;
};
CommVolume volume(const CollectiveDesc& desc, CommAlgorithm algorithm, int rank, int peer);

}  // namespace braid::cuda
