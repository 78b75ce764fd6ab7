#include "braid/kernels/cuda/pointwise/device/layer_norm.h"

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/pointwise/device/reduce.cuh"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

struct NormArgs {
  const void *w, *b;  // [group] or null
  DType w_dtype, b_dtype;
  ModulationRows scale, shift;
  int64_t rows_per_sequence;
  float eps;
  int group;
  int groups_per_row;
  int64_t num_groups;
};

// Each sum in a kernel has separate shared memory: warps may be in the second sum while others read
// the first.
enum class Sum : uint8_t { mean, variance };

template <Sum kSum>
__device__ inline float sum_group(float x, int lanes) {
  if (lanes <= 32) return sum_lanes(x, lanes);
  __shared__ float partial[32];
  x = sum_lanes(x, 32);
  const int lane = threadIdx.x % 32;
  if (lane == 0) partial[threadIdx.x / 32] = x;
  __syncthreads();
  return sum_lanes(lane < lanes / 32 ? partial[lane] : 0, 32);
}

// V normalized values, from column `at` in a group on, `col` in the row.
template <class Y, int V>
__device__ inline void finish(float (&x)[V], float mean, float inverse, const NormArgs& args,
                              int64_t sequence, int at, int64_t col, Y* y) {
  float w[V], b[V], scale[V], shift[V];
  if (args.w) load_constant(args.w, args.w_dtype, at, w);
  if (args.b) load_constant(args.b, args.b_dtype, at, b);
  if (args.scale.data) {
    widen(load_packed<float, V>(args.scale.data + sequence * args.scale.stride + col), scale);
  }
  if (args.shift.data) {
    widen(load_packed<float, V>(args.shift.data + sequence * args.shift.stride + col), shift);
  }
#pragma unroll
  for (int j = 0; j < V; ++j) {
    x[j] = (x[j] - mean) * inverse;
    if (args.w) x[j] *= w[j];
    if (args.b) x[j] += b[j];
    if (args.scale.data) x[j] *= 1 + scale[j];
    if (args.shift.data) x[j] += shift[j];
  }
  store(y + at, x);
}

// A group per threadIdx.y; kChunks of its vectors per thread, all in registers. kChunks = 0: a
// group too long for registers, read three times.
template <class X, class Y, int V, int kChunks>
__global__ void __launch_bounds__(1024)
    layer_norm_kernel(Rows<const X> x, Rows<Y> y, NormArgs args) {
  ptx::grid_launch_dependents();
  const int lanes = blockDim.x;
  const int64_t group = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  // Threads past the end shadow the last group, so whole warps take part in the sums.
  const int64_t g = group < args.num_groups ? group : args.num_groups - 1;
  const int64_t row = g / args.groups_per_row;
  const int64_t col = (g - row * args.groups_per_row) * args.group;
  const int64_t sequence = row / args.rows_per_sequence;
  const X* xr = x.data + row * x.stride + col;
  Y* yr = y.data + row * y.stride + col;
  const int vectors = args.group / V;
  const float n = static_cast<float>(args.group);
  const bool write = group < args.num_groups;
  ptx::grid_dependency_wait();
  if constexpr (kChunks > 0) {
    Packed<X, V> packed[kChunks];
    float v[kChunks][V];
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int at = threadIdx.x + i * lanes;
      if (at < vectors) packed[i] = load_packed<X, V>(xr + at * V);
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (threadIdx.x + i * lanes >= vectors) break;
      widen(packed[i], v[i]);
#pragma unroll
      for (int j = 0; j < V; ++j) sum += v[i][j];
    }
    const float mean = sum_group<Sum::mean>(sum, lanes) / n;
    sum = 0;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (threadIdx.x + i * lanes >= vectors) break;
#pragma unroll
      for (int j = 0; j < V; ++j) sum += (v[i][j] - mean) * (v[i][j] - mean);
    }
    const float inverse = rsqrtf(sum_group<Sum::variance>(sum, lanes) / n + args.eps);
    if (!write) return;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int at = (threadIdx.x + i * lanes) * V;
      if (at >= args.group) break;
      finish(v[i], mean, inverse, args, sequence, at, col + at, yr);
    }
  } else {
    float sum = 0;
    const auto each = [&](auto f) {
      for (int at = threadIdx.x; at < vectors; at += lanes) {
        float v[V];
        widen(load_packed<X, V>(xr + at * V), v);
        f(v, at * V);
      }
    };
    each([&](float(&v)[V], int) {
      for (int j = 0; j < V; ++j) sum += v[j];
    });
    const float mean = sum_group<Sum::mean>(sum, lanes) / n;
    sum = 0;
    each([&](float(&v)[V], int) {
      for (int j = 0; j < V; ++j) sum += (v[j] - mean) * (v[j] - mean);
    });
    const float inverse = rsqrtf(sum_group<Sum::variance>(sum, lanes) / n + args.eps);
    if (!write) return;
    each([&](float(&v)[V], int at) { finish(v, mean, inverse, args, sequence, at, col + at, yr); });
  }
}

template <class X, class Y>
void launch_norm(const LayerNormParams& p, const RowsDesc& desc, const RowsConfig& config,
                 const LaunchContext& context) {
  const NormArgs args = {.w = p.w.data,
                         .b = p.b.data,
                         .w_dtype = p.w.dtype,
                         .b_dtype = p.b.dtype,
                         .scale = p.scale,
                         .shift = p.shift,
                         .rows_per_sequence = p.rows_per_sequence,
                         .eps = p.eps,
                         .group = static_cast<int>(p.group),
                         .groups_per_row = static_cast<int>(p.x.cols() / p.group),
                         .num_groups = desc.rows};
  const auto run = [&]<int V, int kChunks>() {
    launch_kernel(context, layer_norm_kernel<X, Y, V, kChunks>,
                  dim3(static_cast<unsigned>(ceil_div(desc.rows, config.rows_per_cta))),
                  dim3(config.lanes, config.rows_per_cta), 0, rows_of<const X>(p.x),
                  rows_of<Y>(p.y), args);
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
  fail(ErrorCode::kUnsupported, "layer_norm: no kernel for {}", to_string(config));
}

// y = a + gate * b; kChunks vectors per thread, all loaded before the first is used.
template <class A, class B, int V, int kChunks>
__global__ void __launch_bounds__(512)
    gated_add_kernel(Rows<const A> a, Rows<const B> b, Rows<A> y, ModulationRows gate,
                     int64_t rows_per_sequence, int64_t rows, int vectors) {
  ptx::grid_launch_dependents();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int first = blockIdx.y * blockDim.x * kChunks + threadIdx.x;
  ptx::grid_dependency_wait();
  if (row >= rows) return;
  const float* gates = gate.data + row / rows_per_sequence * gate.stride;
  Packed<A, V> pa[kChunks];
  Packed<B, V> pb[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int at = first + i * blockDim.x;
    if (at >= vectors) break;
    pa[i] = load_packed<A, V>(a.data + row * a.stride + at * V);
    pb[i] = load_packed<B, V>(b.data + row * b.stride + at * V);
  }
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int at = first + i * blockDim.x;
    if (at >= vectors) break;
    float xa[V], xb[V], g[V];
    widen(pa[i], xa);
    widen(pb[i], xb);
    widen(load_packed<float, V>(gates + at * V), g);
#pragma unroll
    for (int j = 0; j < V; ++j) xa[j] += g[j] * xb[j];
    store(y.data + row * y.stride + at * V, xa);
  }
}

template <class A, class B>
void launch_add(const GatedAddParams& p, const RowsDesc& desc, const RowsConfig& config,
                const LaunchContext& context) {
  const int64_t vectors = desc.cols / desc.vector;
  const auto run = [&]<int V, int kChunks>() {
    RowsConfig made = config;
    made.chunks = kChunks;
    launch_kernel(context, gated_add_kernel<A, B, V, kChunks>,
                  map_grid("gated_add", made, desc.rows, vectors, desc.cols),
                  dim3(config.lanes, config.rows_per_cta), 0, rows_of<const A>(p.a),
                  rows_of<const B>(p.b), rows_of<A>(p.y), p.gate, p.rows_per_sequence, desc.rows,
                  static_cast<int>(vectors));
  };
  constexpr int kWide = sizeof(A) == 2 && sizeof(B) == 2 ? 8 : 4;
  if (desc.vector == 1) return run.template operator()<1, 4>();
  if (desc.vector == 4 && kWide == 8) return run.template operator()<4, 4>();
  if (config.chunks == 1) return run.template operator()<kWide, 1>();
  if (config.chunks == 2) return run.template operator()<kWide, 2>();
  run.template operator()<kWide, 4>();
}

bool aligned(const ModulationRows& m) {
  return m.data == nullptr || (reinterpret_cast<uintptr_t>(m.data) % 16 == 0 && m.stride % 4 == 0);
}

void require_sequences(std::string_view op, int64_t rows, int64_t rows_per_sequence) {
  if (rows_per_sequence >= 1) return;
  fail(ErrorCode::kInvalidArgument, "{}: {} rows, {} of a sequence", op, rows, rows_per_sequence);
}

}  // namespace

RowsDesc layer_norm_desc(const LayerNormParams& p) {
  constexpr std::string_view kOp = "layer_norm";
  require_matrix(kOp, "x", p.x, {DType::f32, DType::f16, DType::bf16});
  require_matrix(kOp, "y", p.y, {DType::f32, DType::f16, DType::bf16});
  require_shape(kOp, "y", p.y, p.x.shape);
  require_sequences(kOp, p.x.rows(), p.rows_per_sequence);
  if (p.group < 1 || p.group > (1 << 24) || p.x.cols() % p.group != 0) {
    fail(ErrorCode::kInvalidArgument, "layer_norm: groups of {} in {} columns", p.group,
         p.x.cols());
  }
  bool whole =
      p.group % 4 == 0 && rows_aligned({p.x, p.y}, 4) && aligned(p.scale) && aligned(p.shift);
  for (const TensorView* row : {&p.w, &p.b}) {
    if (!row->data) continue;
    require_matrix(kOp, row == &p.w ? "w" : "b", *row, {DType::f32, DType::f16, DType::bf16});
    require_shape(kOp, row == &p.w ? "w" : "b", *row, {p.group});
    whole = whole && reinterpret_cast<uintptr_t>(row->data) % 16 == 0;
  }
  return {.rows = p.x.rows() * (p.x.cols() / p.group), .cols = p.group, .vector = whole ? 4 : 1};
}

void layer_norm(const LayerNormParams& p, const RowsConfig& config, LaunchContext context) {
  const RowsDesc desc = layer_norm_desc(p);
  if (desc.rows == 0) return;
  require_norm_config("layer_norm", desc, config);
  with_types(p.x.dtype, p.y.dtype,
             [&]<class X, class Y>(X, Y) { launch_norm<X, Y>(p, desc, config, context); });
}

RowsDesc gated_add_desc(const GatedAddParams& p) {
  constexpr std::string_view kOp = "gated_add";
  require_matrix(kOp, "a", p.a, {DType::f32, DType::f16, DType::bf16});
  require_matrix(kOp, "b", p.b, {DType::f32, DType::f16, DType::bf16});
  require_matrix(kOp, "y", p.y, {p.a.dtype});
  require_shape(kOp, "b", p.b, p.a.shape);
  require_shape(kOp, "y", p.y, p.a.shape);
  require_sequences(kOp, p.a.rows(), p.rows_per_sequence);
  const int64_t cols = p.a.cols();
  return {.rows = p.a.rows(),
          .cols = cols,
          .vector = aligned(p.gate) ? vector_of(cols, {p.a, p.b, p.y}) : 1};
}

void gated_add(const GatedAddParams& p, const RowsConfig& config, LaunchContext context) {
  const RowsDesc desc = gated_add_desc(p);
  if (desc.rows == 0 || desc.cols == 0) return;
  with_types(p.a.dtype, p.b.dtype,
             [&]<class A, class B>(A, B) { launch_add<A, B>(p, desc, config, context); });
}

}  // namespace braid::cuda
