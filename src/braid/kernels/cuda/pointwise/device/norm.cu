#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/pointwise/device/live.cuh"
#include "braid/kernels/cuda/pointwise/device/norm.h"
#include "braid/kernels/cuda/pointwise/device/reduce.cuh"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/ptx/prefetch.h"

namespace braid::cuda {
namespace {

struct NormArgs {
  const void* w;  // [group]
  DType w_dtype;
  float eps;
  int group;
  int groups_per_row;
  int64_t num_groups;
  LiveRows live;
};

__device__ inline float sum_row(float x, int lanes) {
  return lanes <= 32 ? sum_lanes(x, lanes) : sum_cta(x, threadIdx.x, lanes);
}

// A group per threadIdx.y; each thread holds kChunks vectors in registers. kChunks = 0: a group
// beyond the registers, read twice. B is A's type without b.
template <class A, class B, bool kAdd, class Y, int V, int kChunks>
__global__ void __launch_bounds__(1024)
    rms_norm_kernel(Rows<const A> a, Rows<const B> b, Rows<float> s, Rows<Y> y, NormArgs args) {
  ptx::grid_launch_dependents();
  const int lanes = blockDim.x;
  const int64_t group = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  // Threads past the end shadow the last group, so whole warps take part in the sums.
  const int64_t g = group < args.num_groups ? group : args.num_groups - 1;
  const int64_t row = args.groups_per_row == 1 ? g : g / args.groups_per_row;
  const int64_t col = args.groups_per_row == 1 ? 0 : (g - row * args.groups_per_row) * args.group;
  const A* ar = a.data + row * a.stride + col;
  const B* br = kAdd ? b.data + row * b.stride + col : nullptr;
  float* sr = kAdd ? s.data + row * s.stride + col : nullptr;
  Y* yr = y.data + row * y.stride + col;
  const int vectors = args.group / V;

  if constexpr (kChunks > 0) {
    float w[kChunks][V];
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int at = threadIdx.x + i * lanes;
      if (at < vectors) load_constant(args.w, args.w_dtype, at * V, w[i]);
      // A sum lies far away by now, and was there before the launch ahead.
      if (kAdd && at < vectors && args.live.few()) ptx::prefetch_l2(ar + at * V);
    }
    args.live.prefetch();
    ptx::grid_dependency_wait();
    if (lanes > 32 && args.live.dead_early(row)) return;
    const int64_t live = args.live.count();
    float x[kChunks][V];
    Packed<A, V> pa[kChunks];
    Packed<B, V> pb[kChunks];
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int at = threadIdx.x + i * lanes;
      if (at < vectors) {
        pa[i] = load_packed<A, V>(ar + at * V);
        if constexpr (kAdd) pb[i] = load_packed<B, V>(br + at * V);
      }
    }
    const bool write = group < args.num_groups && row < live;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int at = threadIdx.x + i * lanes;
      if (at >= vectors) break;
      widen(pa[i], x[i]);
      if constexpr (kAdd) {
        float add[V];
        widen(pb[i], add);
#pragma unroll
        for (int j = 0; j < V; ++j) x[i][j] += add[j];
        if (write) store(sr + at * V, x[i]);
      }
#pragma unroll
      for (int j = 0; j < V; ++j) sum += x[i][j] * x[i][j];
    }
    const float scale = rsqrtf(sum_row(sum, lanes) / static_cast<float>(args.group) + args.eps);
    if (!write) return;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int at = threadIdx.x + i * lanes;
      if (at >= vectors) break;
#pragma unroll
      for (int j = 0; j < V; ++j) x[i][j] *= scale * w[i][j];
      store(yr + at * V, x[i]);
    }
  } else {
    ptx::grid_dependency_wait();
    const int64_t live = args.live.count();
    const bool write = group < args.num_groups && row < live;
    float sum = 0;
    for (int at = threadIdx.x; at < vectors; at += lanes) {
      float x[V], add[V];
      widen(load_packed<A, V>(ar + at * V), x);
      if constexpr (kAdd) {
        widen(load_packed<B, V>(br + at * V), add);
#pragma unroll
        for (int j = 0; j < V; ++j) x[j] += add[j];
        if (write) store(sr + at * V, x);
      }
#pragma unroll
      for (int j = 0; j < V; ++j) sum += x[j] * x[j];
    }
    const float scale = rsqrtf(sum_row(sum, lanes) / static_cast<float>(args.group) + args.eps);
    if (!write) return;
    for (int at = threadIdx.x; at < vectors; at += lanes) {
      float x[V], w[V];
      if constexpr (kAdd) {
        widen(load_packed<float, V>(sr + at * V), x);  // this thread's own stores
      } else {
        widen(load_packed<A, V>(ar + at * V), x);
      }
      load_constant(args.w, args.w_dtype, at * V, w);
#pragma unroll
      for (int j = 0; j < V; ++j) x[j] *= scale * w[j];
      store(yr + at * V, x);
    }
  }
}

template <class A, class B, bool kAdd, class Y>
void launch(const RmsNormParams& p, const RowsDesc& desc, const RowsConfig& config,
            const LaunchContext& context) {
  const NormArgs args = {.w = p.w.data,
                         .w_dtype = p.w.dtype,
                         .eps = p.eps,
                         .group = static_cast<int>(p.group),
                         .groups_per_row = static_cast<int>(p.a.cols() / p.group),
                         .num_groups = desc.rows,
                         .live = {p.rows, p.a.rows()}};
  const auto run = [&]<int V, int kChunks>() {
    launch_kernel(context, rms_norm_kernel<A, B, kAdd, Y, V, kChunks>,
                  dim3(static_cast<unsigned>(ceil_div(desc.rows, config.rows_per_cta))),
                  dim3(config.lanes, config.rows_per_cta), 0, rows_of<const A>(p.a),
                  rows_of<const B>(p.b), rows_of<float>(p.s), rows_of<Y>(p.y), args);
  };
  if (desc.vector == 1) return run.template operator()<1, 0>();
  switch (config.chunks) {
    case 0:
      return run.template operator()<4, 0>();
    case 1:
      return run.template operator()<4, 1>();
    case 2:
      return run.template operator()<4, 2>();
    case 4:
      return run.template operator()<4, 4>();
  }
  fail(ErrorCode::kUnsupported, "rms_norm: no kernel for {}", to_string(config));
}

template <class B>
void launch_add(const RmsNormParams& p, const RowsDesc& desc, const RowsConfig& config,
                const LaunchContext& context) {
  p.y.dtype == DType::f32 ? launch<float, B, true, float>(p, desc, config, context)
                          : launch<float, B, true, __nv_bfloat16>(p, desc, config, context);
}

}  // namespace

RowsDesc rms_norm_desc(const RmsNormParams& p) {
  constexpr std::string_view kOp = "rms_norm";
  require_matrix(kOp, "a", p.a, {DType::f32, DType::f16, DType::bf16});
  require_matrix(kOp, "y", p.y, {DType::f32, DType::f16, DType::bf16});
  require_shape(kOp, "y", p.y, p.a.shape);
  if (p.group < 1 || p.group > (1 << 24) || p.a.cols() % p.group != 0) {
    fail(ErrorCode::kInvalidArgument, "rms_norm: groups of {} in {} columns", p.group, p.a.cols());
  }
  require_matrix(kOp, "w", p.w, {DType::f32, DType::f16, DType::bf16});
  require_shape(kOp, "w", p.w, {p.group});
  if (p.b.data) {
    require_matrix(kOp, "b", p.b, {DType::f32, DType::bf16});
    require_matrix(kOp, "s", p.s, {DType::f32});
    require_shape(kOp, "b", p.b, p.a.shape);
    require_shape(kOp, "s", p.s, p.a.shape);
    if (p.a.dtype != DType::f32 || p.y.dtype == DType::f16)
      unsupported_types(kOp, {p.a.dtype, p.b.dtype, p.y.dtype});
  }
  // Vectors of four: 16 bytes in the f32 residual stream. w has a single row, always aligned.
  const bool whole = p.group % 4 == 0 && rows_aligned({p.a, p.b, p.s, p.y}, 4) &&
                     reinterpret_cast<uintptr_t>(p.w.data) % 16 == 0;
  return {.rows = p.a.rows() * (p.a.cols() / p.group), .cols = p.group, .vector = whole ? 4 : 1};
}

void rms_norm(const RmsNormParams& p, const RowsConfig& config, LaunchContext context) {
  const RowsDesc desc = rms_norm_desc(p);
  if (desc.rows == 0) return;
  require_norm_config("rms_norm", desc, config);
  if (!p.b.data) {
    return with_types(p.a.dtype, p.y.dtype, [&]<class A, class Y>(A, Y) {
      launch<A, A, false, Y>(p, desc, config, context);
    });
  }
  p.b.dtype == DType::f32 ? launch_add<float>(p, desc, config, context)
                          : launch_add<__nv_bfloat16>(p, desc, config, context);
}

}  // namespace braid::cuda
