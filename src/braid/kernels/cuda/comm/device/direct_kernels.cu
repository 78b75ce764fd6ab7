#include "braid/kernels/cuda/comm/device/kernels.h"
#include "braid/kernels/cuda/comm/device/line.cuh"

namespace braid::cuda {
namespace {

__device__ int64_t live_rows(const int64_t* live, int64_t rows) {
  return live ? min(*live, rows) : rows;
}

// dst_d[i] = sum_p src_p[i], i < n, for each of `targets` d; 16 bytes a thread and step.
// kRanks 0: any number.
template <class T, int kRanks, int kUnroll>
__device__ void reduce_range(const CommView& view, const ReduceParams& p, int64_t begin, int64_t n,
                             int64_t y_begin) {
  constexpr int kElems = 16 / sizeof(T);
  const int ranks = kRanks ? kRanks : view.ranks;
  const int64_t x_offset = begin * static_cast<int64_t>(sizeof(T));
  const int64_t y_offset = y_begin * static_cast<int64_t>(sizeof(T));
  const bool aligned = is_aligned16(p.own_x + x_offset) && is_aligned16(p.own_y + y_offset);
  const int64_t units = aligned ? n / kElems : 0;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const auto store = [&](int64_t offset, const uint4& v) {
    if (p.scatter) {
      *reinterpret_cast<uint4*>(p.own_y + y_offset + offset) = v;
      return;
    }
#pragma unroll
    for (int k = 0; k < ranks; ++k) {
      const int q = view.rank + k < ranks ? view.rank + k : view.rank + k - ranks;
      *reinterpret_cast<uint4*>(p.y[q] + y_offset + offset) = v;
    }
  };

  int64_t u = first;
  for (; u + (kUnroll - 1) * step < units; u += kUnroll * step) {
    if constexpr (kRanks != 0) {
      uint4 v[kUnroll][kRanks];
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
#pragma unroll
        for (int q = 0; q < kRanks; ++q) {
          v[i][q] =
              ptx::load_streaming(reinterpret_cast<const uint4*>(p.x[q] + x_offset) + u + i * step);
        }
      }
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        WordSum<T, 4> sum;
        sum.set(&v[i][0].x);
#pragma unroll
        for (int q = 1; q < kRanks; ++q) sum.add(&v[i][q].x);
        sum.get(&v[i][0].x);
        store((u + i * step) * 16, v[i][0]);
      }
    } else {
      uint4 v[kUnroll];
      WordSum<T, 4> sum[kUnroll];
      for (int q = 0; q < ranks; ++q) {
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) {
          v[i] =
              ptx::load_streaming(reinterpret_cast<const uint4*>(p.x[q] + x_offset) + u + i * step);
        }
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) {
          q == 0 ? sum[i].set(&v[i].x) : sum[i].add(&v[i].x);
        }
      }
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        sum[i].get(&v[i].x);
        store((u + i * step) * 16, v[i]);
      }
    }
  }
  for (; u < units; u += step) {
    WordSum<T, 4> sum;
    uint4 v;
    for (int q = 0; q < ranks; ++q) {
      v = ptx::load_streaming(reinterpret_cast<const uint4*>(p.x[q] + x_offset) + u);
      q == 0 ? sum.set(&v.x) : sum.add(&v.x);
    }
    sum.get(&v.x);
    store(u * 16, v);
  }
  // The rest behind whole units, or everything at an odd address.
  for (int64_t e = units * kElems + first; e < n; e += step) {
    float sum = 0;
    for (int q = 0; q < ranks; ++q) {
      const float x = static_cast<float>(reinterpret_cast<const T*>(p.x[q] + x_offset)[e]);
      sum = q == 0 ? x : sum + x;
    }
    for (int q = 0; q < ranks; ++q) {
      if (p.scatter && q != view.rank) continue;
      reinterpret_cast<T*>(p.y[q] + y_offset)[e] = static_cast<T>(sum);
    }
  }
}

// all_reduce      y_q[i] = sum_p x_p[i] for every q, i in the part of rank r
// reduce_scatter  y_r[i] = sum_p x_p[begin_r + i]
// Peers' x are loaded in place and sums stored in place, between two barriers of each CTA with the
// CTAs of equal number on other ranks. For all_reduce y may be x: only the rank that stores an
// element loads the element.
template <class T, int kRanks, int kUnroll>
__global__ void __launch_bounds__(kMaxCommThreads, 1)
    direct_reduce_kernel(const __grid_constant__ CommView view,
                         const __grid_constant__ ReduceParams p) {
  ptx::grid_dependency_wait();
  ptx::grid_launch_dependents();
  const int64_t rows = live_rows(p.live, p.rows);
  const uint32_t epoch = begin_epoch_together(view);
  if (epoch != 0 && barrier_with_peers(view, 2 * epoch - 1)) {
    if (p.scatter) {
      const RowRange part = even_rows(rows, view.ranks, view.rank);
      reduce_range<T, kRanks, kUnroll>(view, p, part.begin * p.cols,
                                       (part.end - part.begin) * p.cols, 0);
    } else {
      const Range part = direct_part(rows * p.cols, 16 / sizeof(T), view.ranks, view.rank);
      reduce_range<T, kRanks, kUnroll>(view, p, part.begin, part.end - part.begin, part.begin);
    }
    barrier_with_peers(view, 2 * epoch);
  }
  end_epoch(view, epoch);
}

// all_gather  y_q[begin_r + i] = x_r[i];  all_to_all  y_q[r, i] = x_r[q, i]; for every q
template <int kUnroll>
__global__ void __launch_bounds__(kMaxCommThreads, 1)
    direct_move_kernel(const __grid_constant__ CommView view,
                       const __grid_constant__ MoveParams p) {
  ptx::grid_dependency_wait();
  ptx::grid_launch_dependents();
  const int r = view.rank;
  const int64_t rows = live_rows(p.live, p.rows);
  const uint32_t epoch = begin_epoch_together(view);
  if (epoch != 0 && barrier_with_peers(view, 2 * epoch - 1)) {
    const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    const int64_t step = int64_t{gridDim.x} * blockDim.x;
    for (int k = 1; k <= view.ranks; ++k) {
      const int q = (r + k) % view.ranks;
      const Piece piece = piece_of(p.to_all, rows, p.row_bytes, view.ranks, r, q);
      const std::byte* const from = p.x + piece.src;
      std::byte* const to = p.y[q] + piece.dst;
      if (from == to) continue;
      const int64_t units = is_aligned16(from) && is_aligned16(to) ? piece.bytes / 16 : 0;
      const uint4* const from16 = reinterpret_cast<const uint4*>(from);
      uint4* const to16 = reinterpret_cast<uint4*>(to);
      int64_t u = first;
      for (; u + (kUnroll - 1) * step < units; u += kUnroll * step) {
        uint4 v[kUnroll];
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) v[i] = ptx::load_streaming(from16 + u + i * step);
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) to16[u + i * step] = v[i];
      }
      for (; u < units; u += step) to16[u] = ptx::load_streaming(from16 + u);
      for (int64_t b = units * 16 + first; b < piece.bytes; b += step) to[b] = from[b];
    }
    barrier_with_peers(view, 2 * epoch);
  }
  end_epoch(view, epoch);
}

// Every rank is here: before and after copies by copy engines.
__global__ void barrier_kernel(const __grid_constant__ CommView view) {
  ptx::grid_dependency_wait();
  ptx::grid_launch_dependents();
  const uint32_t epoch = begin_epoch_together(view);
  if (epoch != 0) barrier_with_peers(view, 2 * epoch);
  end_epoch(view, epoch);
}

// signal: the slot at `peer` counts one more from this rank, after everything before in the stream.
// wait: until the slot's count equals this rank's waits. Both counts live in device memory, so that
// a replayed graph goes on counting.
__global__ void stream_signal_kernel(const __grid_constant__ CommView view, int slot, int peer) {
  ptx::grid_dependency_wait();
  ptx::grid_launch_dependents();
  if (is_aborted(view)) return;
  uint32_t& count = view.control[view.rank]->signalled[peer][slot];
  ptx::store_release_system(&view.control[peer]->signals[view.rank][slot], ++count);
}

__global__ void stream_wait_kernel(const __grid_constant__ CommView view, int slot, int peer) {
  ptx::grid_dependency_wait();
  ptx::grid_launch_dependents();
  if (is_aborted(view)) return;
  const uint32_t count = ++view.control[view.rank]->awaited[peer][slot];
  wait_flag(view, peer, &view.control[view.rank]->signals[peer][slot], count);
}

template <class T>
DirectReduceKernel direct_reduce_of(int ranks, int unroll) {
  if (ranks == 2) {
    return unroll == 8 ? direct_reduce_kernel<T, 2, 8> : direct_reduce_kernel<T, 2, 4>;
  }
  if (ranks == 4) return direct_reduce_kernel<T, 4, 4>;
  return direct_reduce_kernel<T, 0, 4>;
}

}  // namespace

DirectReduceKernel direct_reduce_kernel_of(DType dtype, int ranks, int unroll) {
  switch (dtype) {
    case DType::f32:
      return direct_reduce_of<float>(ranks, unroll);
    case DType::f16:
      return direct_reduce_of<__half>(ranks, unroll);
    default:
      return direct_reduce_of<__nv_bfloat16>(ranks, unroll);
  }
}

DirectMoveKernel direct_move_kernel_of(int unroll) {
  return unroll == 8 ? direct_move_kernel<8> : direct_move_kernel<4>;
}

BarrierKernel barrier_kernel_of() {
  return barrier_kernel;
}
StreamSignalKernel stream_signal_kernel_of() {
  return stream_signal_kernel;
}
StreamSignalKernel stream_wait_kernel_of() {
  return stream_wait_kernel;
}

}  // namespace braid::cuda
