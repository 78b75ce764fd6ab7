#include "braid/kernels/cuda/pointwise/device/tables.h"

#include <cmath>

#include "braid/base/math.h"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

constexpr int kThreads = 256;

// Functions in f64: rounding to f32 then equals a C library's result.
__global__ void __launch_bounds__(kThreads)
    timestep_kernel(const float* t, Rows<float> y, int64_t n, int64_t dim, bool cosines_first,
                    float rate, float divisor) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= n * dim) return;
  const int64_t row = at / dim, col = at - row * dim, half = dim / 2;
  float value = 0;
  if (col < 2 * half) {
    const int64_t i = col < half ? col : col - half;
    const float exponent = rate * static_cast<float>(i) / divisor;
    const double angle = t[row] * static_cast<float>(exp(static_cast<double>(exponent)));
    value = static_cast<float>((col < half) == cosines_first ? cos(angle) : sin(angle));
  }
  y.data[row * y.stride + col] = value;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    bias_kernel(Rows<const T> table, const int32_t* bucket_of, float* y, int64_t heads, int64_t L) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= heads * L * L) return;
  const int64_t h = at / (L * L), i = at / L % L, j = at % L;
  y[at] = widen(table.data[bucket_of[j - i + L - 1] * table.stride + h]);
}

dim3 grid_of(int64_t elems) {
  return dim3(static_cast<unsigned>(ceil_div(elems, int64_t{kThreads})));
}

}  // namespace

void timestep_embedding(const TensorView& t, const TensorView& y,
                        const ops::TimestepEmbeddingAttrs& a, LaunchContext context) {
  const int64_t n = t.shape[0];
  if (n == 0) return;
  const auto rate = static_cast<float>(-std::log(static_cast<double>(a.max_period)));
  launch_kernel(context, timestep_kernel, grid_of(n * a.dim), dim3(kThreads), 0,
                t.as<const float>(), rows_of<float>(y), n, a.dim, a.cosines_first, rate,
                static_cast<float>(a.dim / 2) - a.shift);
}

void relative_bias(const TensorView& table, const int32_t* bucket_of, const TensorView& y,
                   LaunchContext context) {
  require_matrix("relative_bias", "table", table, {DType::f32, DType::f16, DType::bf16});
  const int64_t heads = y.shape[0], L = y.shape[1];
  const auto run = [&]<class T>() {
    launch_kernel(context, bias_kernel<T>, grid_of(heads * L * L), dim3(kThreads), 0,
                  rows_of<const T>(table), bucket_of, y.as<float>(), heads, L);
  };
  if (table.dtype == DType::f32) return run.template operator()<float>();
  if (table.dtype == DType::bf16) return run.template operator()<__nv_bfloat16>();
  run.template operator()<__half>();
}

}  // namespace braid::cuda
