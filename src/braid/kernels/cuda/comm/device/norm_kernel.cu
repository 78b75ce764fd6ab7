#include "braid/kernels/cuda/comm/device/norm_kernel.h"
#include "braid/kernels/cuda/comm/device/norm_unit.cuh"
#include "braid/kernels/cuda/comm/device/params.h"

namespace braid::cuda {
namespace {

// s = r + sum_p x_p;  y = s / sqrt(mean(s^2) + eps) * w
// A single shot, `spread` CTAs for a row: warp-wide groups of units go round among the CTAs.
template <class T, int kUnits>
__global__ void __launch_bounds__(kMaxCommThreads, 1)
    reduce_norm_kernel(const __grid_constant__ CommView view,
                       const __grid_constant__ ReduceNormKernelParams p) {
  const int units = static_cast<int>(p.cols) / kElems;  // of a row
  float w[kUnits][kElems];
  load_weights(p.w, p.w_bf16, units, w);  // constant: read before the wait
  const int groups = gridDim.x / p.spread;
  const int group = blockIdx.x / p.spread;
  const int share = blockIdx.x - group * p.spread;
  ptx::grid_dependency_wait();
  ptx::grid_launch_dependents();
  const T* const x = static_cast<const T*>(p.x);
  T* const y = static_cast<T*>(p.y);
  const int live = static_cast<int>(p.live ? min(*p.live, p.rows) : p.rows);
  // Without a live row, one is exchanged for the protocol's sake and written nowhere.
  const int rows = live > 0 ? live : 1;
  const int message_units = static_cast<int>(p.rows) * units;
  const auto is_mine = [&](int u) { return (u / 32) % p.spread == share; };

  NormUnit<T> own[kUnits];
  const auto load = [&](int row) {
    if (row >= p.rows) return;  // not the live ones: nothing waits for their number
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const int u = threadIdx.x + i * blockDim.x;
      if (u < units) own[i].load(x + row * p.cols + u * kElems);
    }
  };
  load(group);
  const uint32_t epoch = begin_epoch(view);
  const auto send = [&](int row) {
    if (epoch == 0 || row >= rows) return;
    for (int k = 1; k < view.ranks; ++k) {
      const int q = view.rank + k < view.ranks ? view.rank + k : view.rank + k - view.ranks;
      uint4* const slot = slot_at(view, k, q, epoch);
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        const int u = threadIdx.x + i * blockDim.x;
        if (u < units && is_mine(u)) own[i].send(slot, row * units + u, message_units, epoch);
      }
    }
  };

  bool ok = epoch != 0;
  int parity = 0;
  send(group);
  end_epoch(view, epoch);
  for (int row = group; row < rows; row += groups, parity ^= 1) {
    float s[kUnits][kElems];
    float r[kUnits][kElems];  // loaded before the first wait
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const int u = threadIdx.x + i * blockDim.x;
      if (u < units) load8(p.r + row * p.cols + u * kElems, r[i]);
    }
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const int u = threadIdx.x + i * blockDim.x;
      if (u >= units) continue;
      for (int q = 0; q < view.ranks; ++q) {
        NormUnit<T> unit = own[i];
        if (q != view.rank) {
          ok = ok && unit.receive(view, q, line_slot(view, view.own_staging, q, epoch),
                                  row * units + u, message_units, epoch);
        }
        unit.add_to(s[i], q == 0);
      }
#pragma unroll
      for (int j = 0; j < kElems; ++j) {
        s[i][j] += r[i][j];
        squares += s[i][j] * s[i][j];
      }
    }
    load(row + groups);
    send(row + groups);  // on its way while this row is written
    const float mean = cta_sum(squares, parity) / static_cast<float>(p.cols);
    const float scale = rsqrtf(mean + p.eps);
    if (!ok || live <= 0) continue;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const int u = threadIdx.x + i * blockDim.x;
      if (u >= units || !is_mine(u)) continue;
      const int64_t at = row * p.cols + u * kElems;
      store8(p.s + at, s[i]);
#pragma unroll
      for (int j = 0; j < kElems; ++j) s[i][j] *= scale * w[i][j];
      store8(y + at, s[i]);
    }
  }
}

// The same with a row for each group of CTAs and a unit for each thread: the form for steps of few
// tokens. Addresses are computed before the dependency wait, and later loads are independent.
template <class T, int kRanks>
__global__ void __launch_bounds__(kMaxCommThreads, 1)
    reduce_norm_once_kernel(const __grid_constant__ CommView view,
                            const __grid_constant__ ReduceNormKernelParams p) {
  const int units = static_cast<int>(p.cols) / kElems;
  const int ranks = kRanks ? kRanks : view.ranks;
  const int row = blockIdx.x / p.spread;
  const int u = threadIdx.x;
  const bool inside = u < units && row < p.rows;
  const bool share = inside && (u / 32) % p.spread == static_cast<int>(blockIdx.x) - row * p.spread;
  RawWeights raw = {};
  if (inside) raw.load(p.w, p.w_bf16, u);
  const int64_t at = row * p.cols + u * kElems;
  const T* const x = static_cast<const T*>(p.x) + at;
  const int message_units = static_cast<int>(p.rows) * units;
  const unsigned lines = static_cast<unsigned>(view.lines);
  const unsigned bank = ranks * lines;
  const int line = row * units + u;
  uint4* const to = view.next_staging + (view.rank * lines + line);  // at P = 2
  const uint4* const from = view.own_staging + ((1 - view.rank) * lines + line);
  if (inside) ptx::prefetch_l2(kRanks == 2 ? static_cast<const void*>(from) : x);
  ptx::prefetch_l2(view.own->epoch + blockIdx.x);
  ptx::grid_dependency_wait();
  ptx::grid_launch_dependents();

  NormUnit<T> own;
  float r[kElems];
  if (inside) {
    own.load(x);
    load8(p.r + at, r);
  }
  const int live = p.live ? static_cast<int>(*p.live) : static_cast<int>(p.rows);
  const uint32_t epoch = begin_epoch(view);
  // Without a live row, one is exchanged for the protocol's sake and written nowhere.
  const bool mine = epoch != 0 && inside && row < max(live, 1);
  if (mine && share) {
    if constexpr (kRanks == 2) {
      own.send(to + (epoch & 1) * bank, 0, message_units, epoch);
    } else {
      for (int k = 1; k < ranks; ++k) {
        const int q = view.rank + k < ranks ? view.rank + k : view.rank + k - ranks;
        own.send(slot_at(view, k, q, epoch), line, message_units, epoch);
      }
    }
  }
  end_epoch(view, epoch);
  float s[kElems];
  float squares = 0;
  bool ok = true;
  if (mine) {
#pragma unroll
    for (int q = 0; q < ranks; ++q) {
      NormUnit<T> unit = own;
      if (q != view.rank) {
        const uint4* const slot = kRanks == 2 ? from + (epoch & 1) * bank
                                              : line_slot(view, view.own_staging, q, epoch) + line;
        ok = ok && unit.receive(view, q, slot, 0, message_units, epoch);
      }
      unit.add_to(s, q == 0);
    }
#pragma unroll
    for (int j = 0; j < kElems; ++j) {
      s[j] += r[j];
      squares += s[j] * s[j];
    }
  }
  const float mean = cta_sum(squares, 0) / static_cast<float>(p.cols);
  if (!mine || !share || !ok || row >= live) return;
  const float scale = rsqrtf(mean + p.eps);
  store8(p.s + at, s);
  float w[kElems];
  raw.get(p.w_bf16, w);
#pragma unroll
  for (int j = 0; j < kElems; ++j) s[j] *= scale * w[j];
  store8(static_cast<T*>(p.y) + at, s);
}

// s_r = r_r + sum_p x_p[rows of r];  y_q[rows of r] = s_r / sqrt(mean(s_r^2) + eps) * w for every q
// Between two barriers of flags, as direct_reduce_kernel; a CTA for a row at a time.
template <class T, int kUnits>
__global__ void __launch_bounds__(kMaxCommThreads, 1)
    scatter_norm_kernel(const __grid_constant__ CommView view,
                        const __grid_constant__ ScatterNormKernelParams p) {
  const int units = static_cast<int>(p.cols) / kElems;
  float w[kUnits][kElems];
  load_weights(p.w, p.w_bf16, units, w);
  ptx::grid_dependency_wait();
  ptx::grid_launch_dependents();
  const int64_t live = p.live ? min(*p.live, p.rows) : p.rows;
  const RowRange rows = even_rows(live, view.ranks, view.rank);
  const uint32_t epoch = begin_epoch_together(view);
  if (epoch != 0 && barrier_with_peers(view, 2 * epoch - 1)) {
    int parity = 0;
    for (int64_t row = rows.begin + blockIdx.x; row < rows.end; row += gridDim.x, parity ^= 1) {
      const int64_t mine = (row - rows.begin) * p.cols;
      float s[kUnits][kElems];
      float squares = 0;
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        const int u = threadIdx.x + i * blockDim.x;
        if (u >= units) continue;
        for (int q = 0; q < view.ranks; ++q) {
          NormUnit<T> unit;
          unit.load_streaming(static_cast<const T*>(p.x[q]) + row * p.cols + u * kElems);
          unit.add_to(s[i], q == 0);
        }
        float r[kElems];
        load8(p.r + mine + u * kElems, r);
#pragma unroll
        for (int j = 0; j < kElems; ++j) {
          s[i][j] += r[j];
          squares += s[i][j] * s[i][j];
        }
      }
      const float mean = cta_sum(squares, parity) / static_cast<float>(p.cols);
      const float scale = rsqrtf(mean + p.eps);
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        const int u = threadIdx.x + i * blockDim.x;
        if (u >= units) continue;
        store8(p.s + mine + u * kElems, s[i]);
#pragma unroll
        for (int j = 0; j < kElems; ++j) s[i][j] *= scale * w[i][j];
        for (int k = 0; k < view.ranks; ++k) {
          const int q = (view.rank + k) % view.ranks;
          store8(static_cast<T*>(p.y[q]) + row * p.cols + u * kElems, s[i]);
        }
      }
    }
    barrier_with_peers(view, 2 * epoch);
  }
  end_epoch(view, epoch);
}

template <class T>
ScatterNormKernel scatter_of(int units) {
  switch (units) {
    case 1:
      return scatter_norm_kernel<T, 1>;
    case 2:
      return scatter_norm_kernel<T, 2>;
    default:
      return scatter_norm_kernel<T, 4>;
  }
}

template <class T>
ReduceNormKernel reduce_norm_of(int units) {
  switch (units) {
    case 1:
      return reduce_norm_kernel<T, 1>;
    case 2:
      return reduce_norm_kernel<T, 2>;
    default:
      return reduce_norm_kernel<T, 4>;
  }
}

}  // namespace

ReduceNormKernel reduce_norm_kernel_of(DType dtype, int units) {
  return dtype == DType::f32 ? reduce_norm_of<float>(units) : reduce_norm_of<__nv_bfloat16>(units);
}

ReduceNormKernel reduce_norm_once_kernel_of(DType dtype, int ranks) {
  if (dtype == DType::f32) {
    return ranks == 2 ? reduce_norm_once_kernel<float, 2> : reduce_norm_once_kernel<float, 0>;
  }
  return ranks == 2 ? reduce_norm_once_kernel<__nv_bfloat16, 2>
                    : reduce_norm_once_kernel<__nv_bfloat16, 0>;
}

ScatterNormKernel scatter_norm_kernel_of(DType dtype, int units) {
  return dtype == DType::f32 ? scatter_of<float>(units) : scatter_of<__nv_bfloat16>(units);
}

}  // namespace braid::cuda
