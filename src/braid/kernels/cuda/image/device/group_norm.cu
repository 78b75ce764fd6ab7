#include "braid/kernels/cuda/image/device/group_norm.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/activation.cuh"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostParts = 512;    // CTAs that sum up a picture
constexpr int64_t kPixelsOfPart = 64;  // at least: few pixels need all multiprocessors, too
constexpr int kMostVectors = 4096;     // of a pixel
constexpr int kAhead = 8;              // pixels that a thread loads at once

int64_t parts_of(int64_t pixels) {
  return std::clamp<int64_t>(pixels / kPixelsOfPart, 1, kMostParts);
}

// Pixels of y around those of x: the first come from `above`, the last from `below`.
struct Halo {
  const void *above, *below;
  int64_t above_pixels, below_pixels;
};

struct Args {
  const void *x, *w, *b;
  DType w_dtype, b_dtype;
  void* y;
  float2* partial;   // [B, parts, groups]: sum and sum of squares
  float2* scale;     // [B, groups]: mean and 1 / deviation
  int64_t pixels;    // P, of a picture
  Halo halo;         // of one picture
  int64_t per_part;  // pixels that a CTA sums up
  int parts, groups, channels;
  float eps;
  bool silu;
};

// Calls f(p, c) for every step-th pixel p from `first` to `end`, with V channels c from v * V of
// the picture at base(p).
template <class T, int V, class Base, class F>
__device__ inline void for_pixels(const Base& base, int channels, int v, int64_t first, int64_t end,
                                  int step, const F& f) {
  for (; first < end; first += kAhead * step) {
    Packed<T, V> in[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t p = first + k * step;
      if (p < end) in[k] = load_packed<T, V>(base(p) + p * channels + v * V);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t p = first + k * step;
      if (p >= end) break;
      float c[V];
      widen(in[k], c);
      f(p, c);
    }
  }
}

// Threads are vectors with V channels, side by side until they fill the CTA, then pixel by pixel.
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
    const auto count = [&](int64_t, const float(&c)[V]) {
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const float d = c[j] - middle;
        sum += d;
        squares += d * d;
      }
    };
    const auto base = [x](int64_t) { return x; };
    for_pixels<T, V>(base, a.channels, v, begin + i / vectors, end, at_a_time, count);
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

// A warp for each group in a picture: the mean, and the sum of squared differences from the mean,
// which become a scale or statistics.
template <class T>
__global__ void __launch_bounds__(32) scale_kernel(Args a, float* stats) {
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
  const double off = sum / n, variance = fmax(squares / n - off * off, 0.);
  const double mean = widen(x[g * of_group]) + off;
  if (stats) {
    stats[g] = static_cast<float>(mean);
    stats[a.groups + g] = static_cast<float>(variance * n);
    return;
  }
  a.scale[picture * a.groups + g] = {
      static_cast<float>(mean),
      static_cast<float>(1 / sqrt(variance + static_cast<double>(a.eps)))};
}

struct Pixels {
  int64_t of_rank[kMostNormRanks];
  int ranks;
};

// A thread for each group: the scale from the statistics of all ranks.
__global__ void __launch_bounds__(kThreads)
    join_kernel(Args a, const float* stats, const __grid_constant__ Pixels pixels) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int of_group = a.channels / a.groups;
  for (int g = threadIdx.x; g < a.groups; g += kThreads) {
    double n = 0, sum = 0, squares = 0;
    for (int p = 0; p < pixels.ranks; ++p) {
      const double m = static_cast<double>(pixels.of_rank[p]) * of_group;
      n += m;
      sum += m * stats[2 * p * a.groups + g];
    }
    const double mean = sum / n;
    for (int p = 0; p < pixels.ranks; ++p) {
      const double off = stats[2 * p * a.groups + g] - mean;
      squares += stats[(2 * p + 1) * a.groups + g] +
                 static_cast<double>(pixels.of_rank[p]) * of_group * off * off;
    }
    a.scale[g] = {static_cast<float>(mean),
                  static_cast<float>(1 / sqrt(squares / n + static_cast<double>(a.eps)))};
  }
}

// Threads as in sums_kernel; each keeps its channels' weights for all its pixels.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) apply_kernel(Args a, int64_t per_cta) {
  ptx::grid_launch_dependents();
  const int vectors = a.channels / V, of_group = vectors / a.groups;
  const int at_a_time = max(kThreads / vectors, 1);
  const int64_t picture = blockIdx.y, begin = blockIdx.x * per_cta;
  const int64_t first_own = a.halo.above_pixels, end_own = first_own + a.pixels;
  const int64_t end = min(begin + per_cta, end_own + a.halo.below_pixels);
  ptx::grid_dependency_wait();
  const T* x = static_cast<const T*>(a.x) + (picture * a.pixels - first_own) * a.channels;
  const T* above = static_cast<const T*>(a.halo.above);
  const T* below = static_cast<const T*>(a.halo.below) - end_own * a.channels;
  T* y = static_cast<T*>(a.y) + picture * a.pixels * a.channels;
  for (int i = threadIdx.x; i < at_a_time * vectors; i += kThreads) {
    const int v = i % vectors;
    const float2 scale = a.scale[picture * a.groups + v / of_group];
    float w[V], b[V];
    load_constant(a.w, a.w_dtype, v * V, w);
    load_constant(a.b, a.b_dtype, v * V, b);
    const auto apply = [&](int64_t p, float(&c)[V]) {
#pragma unroll
      for (int j = 0; j < V; ++j) {
        c[j] = (c[j] - scale.x) * scale.y * w[j] + b[j];
        if (a.silu) c[j] = activate(false, c[j]);
      }
      store(y + p * a.channels + v * V, c);
    };
    const auto base = [&](int64_t p) { return p < first_own ? above : p < end_own ? x : below; };
    for_pixels<T, V>(base, a.channels, v, begin + i / vectors, end, at_a_time, apply);
  }
}

// A call's kernels.
struct Parts {
  float* stats = nullptr;        // written, in the place of y
  const float* given = nullptr;  // read, in the place of sums over x
  Pixels pixels = {};
};

template <class T, int V>
void launch(const Args& a, int64_t pictures, const Parts& run, LaunchContext context) {
  const int vectors = a.channels / V;
  if (vectors > kMostVectors) {
    fail(ErrorCode::kUnsupported, "group_norm: {} channels in groups of {}, wanted at most {}",
         a.channels, a.channels / a.groups, kMostVectors);
  }
  const auto y = static_cast<unsigned>(pictures);
  const size_t smem = sizeof(float2) * static_cast<size_t>(std::max(vectors, kThreads));
  if (run.given) {
    launch_kernel(context, join_kernel, dim3(1), dim3(kThreads), 0, a, run.given, run.pixels);
  } else {
    launch_kernel(context, sums_kernel<T, V>, dim3(static_cast<unsigned>(a.parts), y),
                  dim3(kThreads), smem, a);
    context.pdl = true;
    launch_kernel(context, scale_kernel<T>, dim3(static_cast<unsigned>(a.groups), y), dim3(32), 0,
                  a, run.stats);
  }
  if (run.stats) return;
  context.pdl = true;
  const int64_t at_once = int64_t{kAhead} * std::max(kThreads / vectors, 1);
  const int64_t pixels = a.halo.above_pixels + a.pixels + a.halo.below_pixels;
  const int64_t ctas = std::min<int64_t>(ceil_div(pixels, at_once), 4096);
  const int64_t per_cta = round_up(ceil_div(pixels, ctas), at_once);
  launch_kernel(context, apply_kernel<T, V>,
                dim3(static_cast<unsigned>(ceil_div(pixels, per_cta)), y), dim3(kThreads), 0, a,
                per_cta);
}

Args args_of(const TensorView& x, void* workspace, int64_t batch, int64_t groups) {
  Args a = {.x = x.data,
            .partial = static_cast<float2*>(workspace),
            .pixels = x.shape[0] / batch,
            .groups = static_cast<int>(groups),
            .channels = static_cast<int>(x.cols())};
  a.parts = static_cast<int>(parts_of(a.pixels));
  a.per_part = ceil_div(a.pixels, int64_t{a.parts});
  a.scale = a.partial + batch * a.parts * groups;
  return a;
}

void launch(const Args& a, DType dtype, bool aligned, int64_t pictures, const Parts& run,
            const LaunchContext& context) {
  if (a.pixels == 0) return;
  const bool whole = a.channels / a.groups % 4 == 0 && aligned;
  if (dtype == DType::f32) {
    return whole ? launch<float, 4>(a, pictures, run, context)
                 : launch<float, 1>(a, pictures, run, context);
  }
  whole ? launch<__nv_bfloat16, 4>(a, pictures, run, context)
        : launch<__nv_bfloat16, 1>(a, pictures, run, context);
}

void normalize(const GroupNormParams& p, const TensorView& edges, const Halo& halo,
               const Parts& run, const LaunchContext& context) {
  constexpr std::string_view kOp = "group_norm";
  const auto& attrs = p.attrs;
  require_matrix(kOp, "x", p.x, {DType::f32, DType::bf16});
  require_matrix(kOp, "y", p.y, {p.x.dtype});
  require_shape(kOp, "y", p.y,
                {p.x.shape[0] + halo.above_pixels + halo.below_pixels, p.x.shape[1]});
  require_matrix(kOp, "w", p.w, {DType::f32, DType::f16, DType::bf16});
  require_matrix(kOp, "b", p.b, {DType::f32, DType::f16, DType::bf16});
  Args a = args_of(p.x, p.workspace, attrs.batch, attrs.groups);
  a.w = p.w.data;
  a.b = p.b.data;
  a.w_dtype = p.w.dtype;
  a.b_dtype = p.b.dtype;
  a.y = p.y.data;
  a.halo = halo;
  a.eps = attrs.eps;
  a.silu = attrs.silu;
  launch(a, p.x.dtype, rows_aligned({p.x, p.y, p.w, p.b, edges}, 4), attrs.batch, run, context);
}

}  // namespace

int64_t group_norm_workspace(const ops::GroupNormAttrs& a, const Shape& x) {
  const int64_t parts = parts_of(x[0] / a.batch);
  return static_cast<int64_t>(sizeof(float2)) * a.batch * a.groups * (parts + 1);
}

void group_norm(const GroupNormParams& params, LaunchContext context) {
  normalize(params, {}, {}, {}, context);
}

void group_stats(const GroupStatsParams& p, LaunchContext context) {
  require_matrix("group_stats", "x", p.x, {DType::f32, DType::bf16});
  require_matrix("group_stats", "stats", p.stats, {DType::f32});
  require_shape("group_stats", "stats", p.stats, {1, 2 * p.groups});
  launch(args_of(p.x, p.workspace, 1, p.groups), p.x.dtype, rows_aligned({p.x}, 4), 1,
         {.stats = p.stats.as<float>()}, context);
}

void group_norm_by(const GroupNormByParams& p, LaunchContext context) {
  const auto ranks = std::ssize(p.attrs.pixels);
  require_matrix("group_norm_by", "stats", p.stats, {DType::f32});
  require_shape("group_norm_by", "stats", p.stats, {ranks, 2 * p.norm.attrs.groups});
  if (ranks > kMostNormRanks) {
    fail(ErrorCode::kUnsupported, "group_norm_by: {} ranks, wanted at most {}", ranks,
         kMostNormRanks);
  }
  Parts run{.given = p.stats.as<const float>(), .pixels = {.ranks = static_cast<int>(ranks)}};
  std::ranges::copy(p.attrs.pixels, run.pixels.of_rank);
  Halo halo = {};
  if (p.attrs.halo) {
    require_matrix("group_norm_by", "edges", p.edges, {p.norm.x.dtype});
    const auto moves = ops::moves_of(*p.attrs.halo, p.norm.x.rows());
    const auto edge = [&](const ops::RowMove& m) {
      return m.rows > 0 ? p.edges.data + m.from * p.edges.row_bytes : nullptr;
    };
    halo = {edge(moves[0]), edge(moves[2]), moves[0].rows, moves[2].rows};
  }
  normalize(p.norm, p.edges, halo, run, context);
}

}  // namespace braid::cuda
