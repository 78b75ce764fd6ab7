#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/pointwise/config.h"
#include "braid/kernels/cuda/pointwise/device/live.cuh"
#include "braid/kernels/cuda/pointwise/device/operand.h"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {

struct MapArgs {
  LiveRows live;
  int vectors;  // of a row
};

// y = F()(a, b) element by element. kChunks vectors per thread, all loaded before the first is
// used.
template <class F, class A, class B, class Y, int V, int kChunks>
__global__ void __launch_bounds__(512)
    map_kernel(Rows<const A> a, Rows<const B> b, Rows<Y> y, MapArgs args) {
  ptx::grid_launch_dependents();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int first = blockIdx.y * blockDim.x * kChunks + threadIdx.x;
  ptx::grid_dependency_wait();
  if (row >= args.live.capacity || args.live.dead_early(row)) return;
  const int64_t live = args.live.count();
  Packed<A, V> pa[kChunks];
  Packed<B, V> pb[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int at = first + i * blockDim.x;
    if (at >= args.vectors) break;
    pa[i] = load_packed<A, V>(a.data + row * a.stride + at * V);
    if constexpr (F::kBinary) pb[i] = load_packed<B, V>(b.data + row * b.stride + at * V);
  }
  if (row >= live) return;
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int at = first + i * blockDim.x;
    if (at >= args.vectors) break;
    float xa[V], xb[V];
    widen(pa[i], xa);
    if constexpr (F::kBinary) widen(pb[i], xb);
#pragma unroll
    for (int j = 0; j < V; ++j) xa[j] = F::apply(xa[j], F::kBinary ? xb[j] : 0);
    store(y.data + row * y.stride + at * V, xa);
  }
}

template <class F, class A, class B, class Y>
void launch_map(const TensorView& a, const TensorView& b, const TensorView& y, const int64_t* rows,
                int vector, const RowsConfig& config, const LaunchContext& context) {
  const int64_t vectors = a.cols() / vector;
  const MapArgs args = {.live = {rows, a.rows()}, .vectors = static_cast<int>(vectors)};
  if (a.rows() == 0 || vectors == 0) return;
  if (config.lanes * config.rows_per_cta > 512 || vectors > (1 << 24)) {
    fail(ErrorCode::kUnsupported, "pointwise: {} for rows of {}", to_string(config), a.cols());
  }
  const auto run = [&]<int V, int kChunks>() {
    const dim3 grid(static_cast<unsigned>(ceil_div(a.rows(), config.rows_per_cta)),
                    static_cast<unsigned>(ceil_div(vectors, config.lanes * kChunks)));
    launch_kernel(context, map_kernel<F, A, B, Y, V, kChunks>, grid,
                  dim3(config.lanes, config.rows_per_cta), 0, rows_of<const A>(a),
                  rows_of<const B>(b), rows_of<Y>(y), args);
  };
  constexpr int kWide = sizeof(A) == 2 && sizeof(B) == 2 && sizeof(Y) == 2 ? 8 : 4;
  if (vector == 1) return run.template operator()<1, 4>();
  if (vector == 4 && kWide == 8) return run.template operator()<4, 4>();
  if (config.chunks == 1) return run.template operator()<kWide, 1>();
  if (config.chunks == 2) return run.template operator()<kWide, 2>();
  run.template operator()<kWide, 4>();
}

}  // namespace braid::cuda
