#include "braid/kernels/cuda/image/device/group_norm.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/ptx/mma.h"

namespace braid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostParts = 512;      // CTAs that sum up a picture
constexpr int64_t kPixelsOfPart = 1024;  // at least
constexpr int kMostVectors = 4096;       // of a pixel

int64_t parts_of(int64_t pixels) {
  return std::clamp<int64_t>(pixels / kPixelsOfPart, 1, kMostParts);
}

struct Args {
  const void *x, *w, *b;
  DType w_dtype, b_dtype;
  void* y;
  float2* partial;   // [B, parts, groups]: sum and sum of squares
  float2* scale;     // [B, groups]: mean and 1 / deviation
  int64_t pixels;    // P, of a picture
  int64_t per_part;  // pixels that a CTA sums up
  int parts, groups, channels;
  float eps;
  bool silu;
};

// Threads are vectors of V channels, side by side until they fill the CTA, then pixel by pixel.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) sums_kernel(Args a) {
  extern __shared__ float2 sums[];  // [pixels at a time, vectors]
  ptx::grid_launch_dependents();
  const int vectors = a.channels / V, of_group = vectors / a.groups;
  const int at_a_time = max(kThreads / vectors, 1);
  const int64_t picture = blockIdx.y, begin = blockIdx.x * a.per_part;
  const int64_t end = min(begin + a.per_part, a.pixels);
  ptx::grid_dependency_wait();
  const T* x = static_cast<const T*>(a.x) + picture * a.pixels * a.channels;
  for (int i = threadIdx.x; i < at_a_time * vectors; i += kThreads) {
    const int v = i % vectors;
    const float middle = widen(x[v / of_group * of_group * V]);
    float sum = 0, squares = 0;
    for (int64_t p = begin + i / vectors; p < end; p += at_a_time) {
      float c[V];
      widen(load_packed<T, V>(x + p * a.channels + v * V), c);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const float d = c[j] - middle;
        sum += d;
        squares += d * d;
      }
    }
    sums[i] = {sum, squares};
  }
  __syncthreads();
  for (int g = threadIdx.x; g < a.groups; g += kThreads) {
    double sum = 0, squares = 0;
    for (int p = 0; p < at_a_time; ++p) {
      for (int v = g * of_group; v < (g + 1) * of_group; ++v) {
        sum += sums[p * vectors + v].x;
        squares += sums[p * vectors + v].y;
      }
    }
    a.partial[(picture * a.parts + blockIdx.x) * a.groups + g] = {static_cast<float>(sum),
                                                                  static_cast<float>(squares)};
  }
}

// A warp for each group of a picture.
template <class T>
__global__ void __launch_bounds__(32) scale_kernel(Args a) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int g = blockIdx.x, lane = threadIdx.x;
  const int64_t picture = blockIdx.y;
  double sum = 0, squares = 0;
  for (int p = lane; p < a.parts; p += 32) {
    const float2 part = a.partial[(picture * a.parts + p) * a.groups + g];
    sum += part.x;
    squares += part.y;
  }
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(~0u, sum, step);
    squares += __shfl_xor_sync(~0u, squares, step);
  }
  if (lane != 0) return;
  const int of_group = a.channels / a.groups;
  const T* x = static_cast<const T*>(a.x) + picture * a.pixels * a.channels;
  const double n = static_cast<double>(a.pixels) * of_group;
  const double mean = sum / n, variance = fmax(squares / n - mean * mean, 0.);
  a.scale[picture * a.groups + g] = {
      static_cast<float>(widen(x[g * of_group]) + mean),
      static_cast<float>(1 / sqrt(variance + static_cast<double>(a.eps)))};
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads) apply_kernel(Args a) {
  ptx::grid_launch_dependents();
  const int vectors = a.channels / V, of_group = vectors / a.groups;
  const int64_t picture = blockIdx.y, words = a.pixels * vectors;
  ptx::grid_dependency_wait();
  const T* x = static_cast<const T*>(a.x) + picture * a.pixels * a.channels;
  T* y = static_cast<T*>(a.y) + picture * a.pixels * a.channels;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < words;
       at += step) {
    const int v = static_cast<int>(at % vectors);
    float c[V], w[V], b[V];
    widen(load_packed<T, V>(x + at * V), c);
    load_constant(a.w, a.w_dtype, v * V, w);
    load_constant(a.b, a.b_dtype, v * V, b);
    const float2 scale = a.scale[picture * a.groups + v / of_group];
#pragma unroll
    for (int j = 0; j < V; ++j) {
      c[j] = (c[j] - scale.x) * scale.y * w[j] + b[j];
      if (a.silu) c[j] *= ptx::reciprocal(1 + ptx::exp2_approx(-ptx::kLog2E * c[j]));
    }
    store(y + at * V, c);
  }
}

template <class T, int V>
void launch(const Args& a, int64_t pictures, LaunchContext context) {
  const int vectors = a.channels / V;
  if (vectors > kMostVectors) {
    fail(ErrorCode::kUnsupported, "group_norm: {} channels in groups of {}, wanted at most {}",
         a.channels, a.channels / a.groups, kMostVectors);
  }
  const auto y = static_cast<unsigned>(pictures);
  const size_t smem = sizeof(float2) * static_cast<size_t>(std::max(vectors, kThreads));
  launch_kernel(context, sums_kernel<T, V>, dim3(static_cast<unsigned>(a.parts), y), dim3(kThreads),
                smem, a);
  context.pdl = true;
  launch_kernel(context, scale_kernel<T>, dim3(static_cast<unsigned>(a.groups), y), dim3(32), 0, a);
  const int64_t ctas = std::min<int64_t>(ceil_div(a.pixels * vectors, int64_t{4 * kThreads}), 8192);
  launch_kernel(context, apply_kernel<T, V>, dim3(static_cast<unsigned>(ctas), y), dim3(kThreads),
                0, a);
}

}  // namespace

int64_t group_norm_workspace(const ops::GroupNormAttrs& a, const Shape& x) {
  const int64_t parts = parts_of(x[0] / a.batch);
  return static_cast<int64_t>(sizeof(float2)) * a.batch * a.groups * (parts + 1);
}

void group_norm(const GroupNormParams& p, LaunchContext context) {
  constexpr std::string_view kOp = "group_norm";
  const auto& attrs = p.attrs;
  require_matrix(kOp, "x", p.x, {DType::f32, DType::bf16});
  require_matrix(kOp, "y", p.y, {p.x.dtype});
  require_shape(kOp, "y", p.y, p.x.shape);
  require_matrix(kOp, "w", p.w, {DType::f32, DType::f16, DType::bf16});
  require_matrix(kOp, "b", p.b, {DType::f32, DType::f16, DType::bf16});
  Args a = {.x = p.x.data,
            .w = p.w.data,
            .b = p.b.data,
            .w_dtype = p.w.dtype,
            .b_dtype = p.b.dtype,
            .y = p.y.data,
            .partial = static_cast<float2*>(p.workspace),
            .pixels = p.x.shape[0] / attrs.batch,
            .groups = static_cast<int>(attrs.groups),
            .channels = static_cast<int>(p.x.cols()),
            .eps = attrs.eps,
            .silu = attrs.silu};
  if (a.pixels == 0) return;
  a.parts = static_cast<int>(parts_of(a.pixels));
  a.per_part = ceil_div(a.pixels, int64_t{a.parts});
  a.scale = a.partial + attrs.batch * a.parts * a.groups;
  const bool whole = a.channels / a.groups % 4 == 0 && rows_aligned({p.x, p.y, p.w, p.b}, 4);
  if (p.x.dtype == DType::f32) {
    return whole ? launch<float, 4>(a, attrs.batch, context)
                 : launch<float, 1>(a, attrs.batch, context);
  }
  whole ? launch<__nv_bfloat16, 4>(a, attrs.batch, context)
        : launch<__nv_bfloat16, 1>(a, attrs.batch, context);
}

}  // namespace braid::cuda
