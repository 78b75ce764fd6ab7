#include <cstring>
#include <type_traits>

#include "braid/kernels/cuda/comm/device/kernels.h"
#include "braid/kernels/cuda/comm/device/line.cuh"

namespace braid::cuda {
namespace {

__device__ int64_t live_rows(const int64_t* live, int64_t rows) {
  return live ? min(*live, rows) : rows;
}

// Warps take units round the CTAs: a small message leaves through all CTAs.
__device__ int first_unit() {
  return ((threadIdx.x / 32) * gridDim.x + blockIdx.x) * 32 + threadIdx.x % 32;
}

// all_reduce      y_r[i] = sum_p x_p[i]
// reduce_scatter  y_r[i] = sum_p x_p[begin_r + i]
// One shot: each rank stores a peer's summands in the peer's staging memory, then sums its own
// part as the lines arrive, in the order of the ranks.
template <class T, int kData, bool kScatter>
__global__ void __launch_bounds__(kMaxCommThreads, 1)
    line_reduce_kernel(const __grid_constant__ CommView view,
                       const __grid_constant__ ReduceParams p) {
  using Unit = LineUnit<kData>;
  ptx::grid_dependency_wait();
  ptx::grid_launch_dependents();
  const int r = view.rank;
  const int64_t rows = live_rows(p.live, p.rows);
  const int64_t row_bytes = p.cols * sizeof(T);
  const int first = first_unit();
  const int step = gridDim.x * blockDim.x;
  const auto part = [&](int q) {
    return kScatter ? even_rows(rows, view.ranks, q) : RowRange{0, rows};
  };
  const RowRange mine = part(r);
  const std::byte* const x = p.own_x + mine.begin * row_bytes;
  const int64_t bytes = (mine.end - mine.begin) * row_bytes;
  const int units = line_units<kData>(bytes);
  const bool x_aligned = is_aligned16(x);
  const bool y_aligned = is_aligned16(p.own_y);
  const bool once = units <= step;  // a unit for each thread stays in its registers
  Unit own;
  if (first < units)
    own.load(x + int64_t{first} * Unit::kBytes, bytes - int64_t{first} * Unit::kBytes, x_aligned);
  const uint32_t epoch = begin_epoch(view);  // the epoch's load overlaps the load of x

  if (epoch != 0) {
    for (int k = 1; k < view.ranks; ++k) {
      const int q = r + k < view.ranks ? r + k : r + k - view.ranks;
      uint4* const slot = slot_at(view, k, q, epoch);
      if (!kScatter && once) {
        if (first < units) own.send(slot, first, units, epoch);
        continue;
      }
      const RowRange theirs = part(q);
      const std::byte* const from = p.own_x + theirs.begin * row_bytes;
      const int64_t their_bytes = (theirs.end - theirs.begin) * row_bytes;
      const int their_units = line_units<kData>(their_bytes);
      const bool aligned = is_aligned16(from);
      for (int u = first; u < their_units; u += step) {
        Unit unit;
        unit.load(from + int64_t{u} * Unit::kBytes, their_bytes - int64_t{u} * Unit::kBytes,
                  aligned);
        unit.send(slot, u, their_units, epoch);
      }
    }

    bool ok = true;
    for (int u = first; u < units && ok; u += step) {
      const int64_t left = bytes - int64_t{u} * Unit::kBytes;
      if (u != first) own.load(x + int64_t{u} * Unit::kBytes, left, x_aligned);
      WordSum<T, Unit::kWords> sum;
      for (int q = 0; q < view.ranks; ++q) {
        Unit unit = own;
        if (q != r) {
          ok = ok &&
               unit.receive(view, q, line_slot(view, view.own_staging, q, epoch), u, units, epoch);
        }
        q == 0 ? sum.set(unit.words) : sum.add(unit.words);
      }
      if (!ok) break;
      sum.get(own.words);
      own.store(p.own_y + int64_t{u} * Unit::kBytes, left, y_aligned);
    }
  }
  end_epoch(view, epoch);
}

// A unit by its widest words, up to `left` bytes, a multiple of the word.
template <class Unit>
using WordsOf = std::conditional_t<Unit::kBytes % 16 == 0, uint4,
                                   std::conditional_t<Unit::kBytes % 8 == 0, uint2, uint32_t>>;
template <class Unit>
__device__ void load_unit(Unit& unit, const std::byte* p, int left) {
  using Words = WordsOf<Unit>;
#pragma unroll
  for (int at = 0; at < Unit::kBytes; at += sizeof(Words)) {
    Words x = {};
    if (at < left) x = *reinterpret_cast<const Words*>(p + at);
    memcpy(unit.words + at / 4, &x, sizeof(x));
  }
}
template <class Unit>
__device__ void store_unit(const Unit& unit, std::byte* p, int left) {
  using Words = WordsOf<Unit>;
#pragma unroll
  for (int at = 0; at < Unit::kBytes; at += sizeof(Words)) {
    Words x;
    memcpy(&x, unit.words + at / 4, sizeof(x));
    if (at < left) *reinterpret_cast<Words*>(p + at) = x;
  }
}

// all_reduce of a message with a unit for each thread, aligned, in whole 16 bytes (each row, too,
// with live rows): the shortest path. Addresses are computed before the dependency wait (a slot's
// lines are as far apart as the capacity says), later loads do not depend on each other, and the
// epoch is passed on while the peers' lines travel.
template <class T, int kData, int kLines, int kRanks>
__global__ void __launch_bounds__(kMaxCommThreads, 1)
    line_reduce_once_kernel(const __grid_constant__ CommView view,
                            const __grid_constant__ ReduceParams p) {
  using Unit = LineUnit<kData, kLines>;
  const int r = view.rank;
  const int ranks = kRanks ? kRanks : view.ranks;
  const int row_bytes = static_cast<int>(p.cols * sizeof(T));
  const int bytes = static_cast<int>(p.rows * p.cols * sizeof(T));
  const int units = (bytes + Unit::kBytes - 1) / Unit::kBytes;
  const int u = first_unit();
  const int left = bytes - u * Unit::kBytes;
  const std::byte* const x = p.own_x + int64_t{u} * Unit::kBytes;
  std::byte* const y = p.own_y + int64_t{u} * Unit::kBytes;
  constexpr bool kBare = Unit::kBare;
  // In slots at P = 2; there are at most 2^31 lines in all.
  const unsigned tagged = static_cast<unsigned>(view.lines), lines = kBare ? tagged / 2 : tagged;
  const unsigned bank = 2 * lines, begin = kBare ? 4 * tagged : 0;
  uint4* const to = view.next_staging + (begin + r * lines + u);
  uint4* const from = view.own_staging + (begin + (1 - r) * lines + u);
  ptx::prefetch_l2(kRanks == 2 ? static_cast<const void*>(from) : x);
  ptx::prefetch_l2(view.own->epoch + blockIdx.x);
  ptx::grid_dependency_wait();
  ptx::grid_launch_dependents();

  Unit own;
  load_unit(own, x, left);
  const int live = p.live ? static_cast<int>(*p.live) : -1;
  const uint32_t epoch = begin_epoch(view);
  const int live_bytes = live < 0 ? bytes : min(bytes, live * row_bytes);
  const int live_left = live_bytes - u * Unit::kBytes;
  const bool mine = epoch != 0 && (live_left > 0 || u == 0);
  if (mine) {
    if constexpr (kRanks == 2) {
      own.send(to + (epoch & 1) * bank, 0, units, epoch);
    } else {
      for (int k = 1; k < ranks; ++k) {
        const int q = r + k < ranks ? r + k : r + k - ranks;
        own.send(slot_at<kBare>(view, k, q, epoch), u, units, epoch);
      }
    }
  }
  end_epoch(view, epoch);
  if (!mine) return;
  const auto slot_from = [&](int q) {
    if constexpr (kRanks == 2) return from + (epoch & 1) * bank;
    return line_slot<kBare>(view, view.own_staging, q, epoch) + u;
  };
  WordSum<T, Unit::kWords> sum;
  bool ok = true;
#pragma unroll
  for (int q = 0; q < ranks; ++q) {
    Unit unit = own;
    if (q != r) ok = ok && unit.receive(view, q, slot_from(q), 0, units, epoch);
    q == 0 ? sum.set(unit.words) : sum.add(unit.words);
  }
  if (!ok) return;
  sum.get(own.words);
  store_unit(own, y, live_left);
  if constexpr (kBare) {
#pragma unroll
    for (int q = 0; q < ranks; ++q) {
      if (q != r) Unit::clear(slot_from(q), 0, units);
    }
  }
}

// all_gather  y_r[begin_p + i] = x_p[i];  all_to_all  y_r[p, i] = x_p[r, i]
template <int kData>
__global__ void __launch_bounds__(kMaxCommThreads, 1)
    line_move_kernel(const __grid_constant__ CommView view, const __grid_constant__ MoveParams p) {
  using Unit = LineUnit<kData>;
  ptx::grid_dependency_wait();
  ptx::grid_launch_dependents();
  const int r = view.rank;
  const int64_t rows = live_rows(p.live, p.rows);
  const uint32_t epoch = begin_epoch(view);
  const int first = first_unit();
  const int step = gridDim.x * blockDim.x;

  if (epoch != 0) {
    for (int k = 1; k <= view.ranks; ++k) {  // this rank's own piece last
      const int q = (r + k) % view.ranks;
      const Piece piece = piece_of(p.to_all, rows, p.row_bytes, view.ranks, r, q);
      const std::byte* const from = p.x + piece.src;
      std::byte* const to = p.own_y + piece.dst;
      if (q == r && from == to) continue;
      const bool aligned = is_aligned16(from) && (q != r || is_aligned16(to));
      const int units = line_units<kData>(piece.bytes);
      uint4* const slot = slot_at(view, k, q, epoch);
      for (int u = first; u < units; u += step) {
        const int64_t left = piece.bytes - int64_t{u} * Unit::kBytes;
        Unit unit;
        unit.load(from + int64_t{u} * Unit::kBytes, left, aligned);
        if (q == r) {
          unit.store(to + int64_t{u} * Unit::kBytes, left, aligned);
        } else {
          unit.send(slot, u, units, epoch);
        }
      }
    }
    bool ok = true;
    for (int k = 1; k < view.ranks && ok; ++k) {
      const int q = (r + view.ranks - k) % view.ranks;
      const Piece piece = piece_of(p.to_all, rows, p.row_bytes, view.ranks, q, r);
      std::byte* const to = p.own_y + piece.dst;
      const bool aligned = is_aligned16(to);
      const int units = line_units<kData>(piece.bytes);
      const uint4* const slot = line_slot(view, view.own_staging, q, epoch);
      for (int u = first; u < units && ok; u += step) {
        Unit unit;
        ok = unit.receive(view, q, slot, u, units, epoch);
        if (ok)
          unit.store(to + int64_t{u} * Unit::kBytes, piece.bytes - int64_t{u} * Unit::kBytes,
                     aligned);
      }
    }
  }
  end_epoch(view, epoch);
}

template <class T, int kData>
LineReduceKernel line_reduce_once_of(int lines, int ranks) {
  if (ranks != 2) return line_reduce_once_kernel<T, kData, 4, 0>;
  return lines == 1   ? line_reduce_once_kernel<T, kData, 1, 2>
         : lines == 2 ? line_reduce_once_kernel<T, kData, 2, 2>
                      : line_reduce_once_kernel<T, kData, 4, 2>;
}
template <class T>
LineReduceKernel line_reduce_once_of(int data, int lines, int ranks) {
  return data == 16 ? line_reduce_once_of<T, 16>(lines, ranks)
                    : line_reduce_once_of<T, 12>(lines, ranks);
}

template <class T>
LineReduceKernel line_reduce_of(bool wide, bool scatter) {
  if (wide) return scatter ? line_reduce_kernel<T, 12, true> : line_reduce_kernel<T, 12, false>;
  return scatter ? line_reduce_kernel<T, 8, true> : line_reduce_kernel<T, 8, false>;
}

}  // namespace

LineReduceKernel line_reduce_kernel_of(DType dtype, int line_data, bool scatter) {
  const bool wide = line_data != 8;  // bare lines that are not aligned have epochs
  switch (dtype) {
    case DType::f32:
      return line_reduce_of<float>(wide, scatter);
    case DType::f16:
      return line_reduce_of<__half>(wide, scatter);
    default:
      return line_reduce_of<__nv_bfloat16>(wide, scatter);
  }
}

LineReduceKernel line_reduce_once_kernel_of(DType dtype, int line_data, int lines, int ranks) {
  switch (dtype) {
    case DType::f32:
      return line_reduce_once_of<float>(line_data, lines, ranks);
    case DType::f16:
      return line_reduce_once_of<__half>(line_data, lines, ranks);
    default:
      return line_reduce_once_of<__nv_bfloat16>(line_data, lines, ranks);
  }
}

LineMoveKernel line_move_kernel_of(int line_data) {
  return line_data == 12 ? line_move_kernel<12> : line_move_kernel<8>;
}

}  // namespace braid::cuda
