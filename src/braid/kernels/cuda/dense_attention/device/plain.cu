#include "braid/kernels/cuda/dense_attention/device/plain.h"

#include <cmath>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kQueries = 4;  // of a warp
constexpr int kTile = 32;    // keys

struct Part {
  const void *q, *k, *v;
  void* o;
  int64_t q_rows, kv_rows;  // of a sequence
};

struct Args {
  Part parts[kMostDenseParts];
  const float* bias;       // [H, Lq, Lk] or null
  const int32_t* key_len;  // [B] or null
  int64_t queries, keys;   // Lq, Lk
  int heads, group, head_dim;
  float scale;
  bool causal;
};

template <int kBlocks>
constexpr size_t smem_bytes() {
  constexpr int kWide = 32 * kBlocks;
  return sizeof(float) * (kWarps * kQueries * kWide + kTile * (kWide + 1) + kTile * kWide);
}

__device__ inline float most(float x) {
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
  return x;
}
__device__ inline float total(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

// A sequence's row `row` in its part; null beyond the last.
template <class T, class Rows, class Data>
__device__ inline T* find_row(const Args& args, int64_t row, int64_t sequence, int64_t width,
                              Rows rows, Data data) {
#pragma unroll
  for (int i = 0; i < kMostDenseParts; ++i) {
    const Part& part = args.parts[i];
    if (row < rows(part)) {
      return static_cast<T*>(data(part)) + (sequence * rows(part) + row) * width;
    }
    row -= rows(part);
  }
  return nullptr;
}

// A warp has kQueries queries in a head. Its lanes are keys for the scores, and columns for the sum
// of values; heads are padded with zeros to whole blocks of 32 columns.
template <class T, int kBlocks>
__global__ void __launch_bounds__(32 * kWarps) dense_kernel(const __grid_constant__ Args args) {
  constexpr int kWide = 32 * kBlocks;
  extern __shared__ float smem[];
  float* q_smem = smem;                                // [queries, kWide]
  float* k_smem = q_smem + kWarps * kQueries * kWide;  // [kTile, kWide + 1]
  float* v_smem = k_smem + kTile * (kWide + 1);        // [kTile, kWide]
  ptx::grid_launch_dependents();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kWarps * kQueries;
  const int head = blockIdx.y, D = args.head_dim;
  const int64_t b = blockIdx.z;
  const auto q_rows = [](const Part& p) { return p.q_rows; };
  const auto kv_rows = [](const Part& p) { return p.kv_rows; };
  const int64_t width = int64_t{args.heads} * D, kv_width = int64_t{args.heads / args.group} * D;
  const int64_t kv_at = int64_t{head / args.group} * D;
  ptx::grid_dependency_wait();

  for (int i = threadIdx.x; i < kWarps * kQueries * kWide; i += 32 * kWarps) {
    const int d = i % kWide;
    const T* row = find_row<const T>(args, first + i / kWide, b, width, q_rows,
                                     [](const Part& p) { return p.q; });
    q_smem[i] = row && d < D ? widen(row[int64_t{head} * D + d]) : 0;
  }
  int64_t live = args.keys;
  if (args.key_len) live = min(live, static_cast<int64_t>(max(args.key_len[b], 0)));
  int64_t end = live;
  if (args.causal) end = min(end, first + kWarps * kQueries);

  const int64_t query = first + warp * kQueries;
  float top[kQueries], sum[kQueries] = {}, out[kQueries][kBlocks] = {};
  for (float& m : top) m = -INFINITY;
  for (int64_t key = 0; key < end; key += kTile) {
    __syncthreads();
    for (int i = threadIdx.x; i < kTile * kWide; i += 32 * kWarps) {
      const int r = i / kWide, d = i % kWide;
      const bool there = key + r < live && d < D;
      const auto load = [&](auto data) {
        const T* row = find_row<const T>(args, key + r, b, kv_width, kv_rows, data);
        return widen(row[kv_at + d]);
      };
      k_smem[r * (kWide + 1) + d] = there ? load([](const Part& p) { return p.k; }) : 0;
      v_smem[i] = there ? load([](const Part& p) { return p.v; }) : 0;
    }
    __syncthreads();
    float score[kQueries] = {};
#pragma unroll 4
    for (int d = 0; d < kWide; ++d) {
      const float k = k_smem[lane * (kWide + 1) + d];
#pragma unroll
      for (int i = 0; i < kQueries; ++i) score[i] += q_smem[(warp * kQueries + i) * kWide + d] * k;
    }
    const int64_t j = key + lane;
#pragma unroll
    for (int i = 0; i < kQueries; ++i) {
      const int64_t at = query + i;
      const bool seen = j < live && at < args.queries && !(args.causal && j > at);
      float s = -INFINITY;
      if (seen) {
        s = score[i] * args.scale;
        if (args.bias) s += args.bias[(head * args.queries + at) * args.keys + j];
      }
      const float m = fmaxf(top[i], most(s));
      const float p = s == -INFINITY ? 0 : expf(s - m);
      const float keep = top[i] == -INFINITY ? 0 : expf(top[i] - m);
      top[i] = m;
      sum[i] = sum[i] * keep + total(p);
      score[i] = p;
#pragma unroll
      for (int c = 0; c < kBlocks; ++c) out[i][c] *= keep;
    }
#pragma unroll 4
    for (int r = 0; r < kTile; ++r) {
      float p[kQueries];
#pragma unroll
      for (int i = 0; i < kQueries; ++i) p[i] = __shfl_sync(~0u, score[i], r);
#pragma unroll
      for (int c = 0; c < kBlocks; ++c) {
        const float v = v_smem[r * kWide + c * 32 + lane];
#pragma unroll
        for (int i = 0; i < kQueries; ++i) out[i][c] += p[i] * v;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
    T* row = find_row<T>(args, query + i, b, width, q_rows, [](const Part& p) { return p.o; });
    if (row == nullptr) break;
#pragma unroll
    for (int c = 0; c < kBlocks; ++c) {
      const int d = c * 32 + lane;
      if (d < D) row[int64_t{head} * D + d] = narrow<T>(sum[i] > 0 ? out[i][c] / sum[i] : 0);
    }
  }
}

// Calls f with a head's number of 32-column blocks.
template <class F>
void with_blocks(int64_t head_dim, F&& f) {
  if (head_dim <= 32) return f.template operator()<1>();
  if (head_dim <= 64) return f.template operator()<2>();
  if (head_dim <= 128) return f.template operator()<4>();
  if (head_dim <= 256) return f.template operator()<8>();
  f.template operator()<16>();
}

template <class F>
void with_kernel(DType dtype, int64_t head_dim, F&& f) {
  with_blocks(head_dim, [&]<int kBlocks>() {
    constexpr size_t kBytes = smem_bytes<kBlocks>();
    if (dtype == DType::f32) return f(dense_kernel<float, kBlocks>, kBytes);
    if (dtype == DType::bf16) return f(dense_kernel<__nv_bfloat16, kBlocks>, kBytes);
    f(dense_kernel<__half, kBlocks>, kBytes);
  });
}

template <int kThreads, class F>
__device__ inline float reduce_cta(float x, F f, float* partial) {
  for (int step = 16; step > 0; step /= 2) x = f(x, __shfl_xor_sync(~0u, x, step));
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
  __syncthreads();
  x = partial[threadIdx.x % (kThreads / 32)];
  for (int step = kThreads / 64; step > 0; step /= 2) x = f(x, __shfl_xor_sync(~0u, x, step));
  return x;
}

// A row for each CTA, read twice: first for its maximum and sum, then from L2 for the weights.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) softmax_kernel(SoftmaxRows p) {
  constexpr int kV = 4, kAhead = 8;  // scores of a vector, and vectors that a thread loads at once
  __shared__ float tops[kThreads / 32], sums[kThreads / 32];
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const float* scores = p.scores + blockIdx.x * p.stride;
  auto* weights = static_cast<__nv_bfloat16*>(p.weights) + blockIdx.x * p.stride;
  const int keys = static_cast<int>(p.keys), stride = static_cast<int>(p.stride);
  const auto load = [&](int first, float(&x)[kAhead][kV]) {  // -inf behind the last key
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int at = first + k * kThreads * kV;
      Packed<float, kV> in;
      if (at < keys) in = load_packed<float, kV>(scores + at);
      widen(in, x[k]);
#pragma unroll
      for (int e = 0; e < kV; ++e) x[k][e] = at + e < keys ? x[k][e] : -INFINITY;
    }
  };
  const int begin = static_cast<int>(threadIdx.x) * kV, step = kThreads * kV * kAhead;
  float x[kAhead][kV], top = -INFINITY, sum = 0;
  for (int first = begin; first < keys; first += step) {
    load(first, x);
    float higher = top;
#pragma unroll
    for (int k = 0; k < kAhead * kV; ++k) higher = fmaxf(higher, x[k / kV][k % kV]);
    sum *= __expf((top - higher) * p.scale);
    top = higher;
#pragma unroll
    for (int k = 0; k < kAhead * kV; ++k) sum += __expf((x[k / kV][k % kV] - top) * p.scale);
  }
  const float own = top;
  top = reduce_cta<kThreads>(
      top, [](float a, float b) { return fmaxf(a, b); }, tops);
  sum = reduce_cta<kThreads>(
      sum * __expf((own - top) * p.scale), [](float a, float b) { return a + b; }, sums);
  const float inverse = 1 / sum;
  for (int first = begin; first < stride; first += step) {
    load(first, x);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int at = first + k * kThreads * kV;
      if (at >= stride) break;
#pragma unroll
      for (int e = 0; e < kV; ++e) x[k][e] = __expf((x[k][e] - top) * p.scale) * inverse;
      store(weights + at, x[k]);
    }
  }
}

constexpr int kSide = 32;

__global__ void __launch_bounds__(kSide * 8) transpose_kernel(Transpose p) {
  __shared__ __nv_bfloat16 tile[kSide][kSide + 2];
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const auto* x = static_cast<const __nv_bfloat16*>(p.x);
  auto* y = static_cast<__nv_bfloat16*>(p.y);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kSide;
  const int64_t col = static_cast<int64_t>(blockIdx.y) * kSide;
  for (int i = threadIdx.y; i < kSide; i += 8) {
    const int64_t r = row + i, c = col + threadIdx.x;
    tile[i][threadIdx.x] = r < p.rows && c < p.cols ? x[r * p.cols + c] : __nv_bfloat16(0.f);
  }
  __syncthreads();
  for (int i = threadIdx.y; i < kSide; i += 8) {
    const int64_t r = col + i, c = row + threadIdx.x;
    if (r < p.cols && c < p.stride) y[r * p.stride + c] = tile[threadIdx.x][i];
  }
}

}  // namespace

void load_plain_dense_attention(DType dtype, int64_t head_dim) {
  with_kernel(dtype, head_dim,
              [](auto* kernel, size_t bytes) { allow_shared_memory(kernel, bytes); });
}

void plain_dense_attention(const OpCall& call, LaunchContext context) {
  const auto& a = call.attrs<ops::DenseAttentionAttrs>();
  const TensorView &bias = call.in[a.bias()], &key_len = call.in[a.key_len()];
  Args args = {.bias = bias.data ? bias.as<const float>() : nullptr,
               .key_len = key_len.data ? key_len.as<const int32_t>() : nullptr,
               .heads = static_cast<int>(call.in[0].cols() / a.head_dim),
               .head_dim = static_cast<int>(a.head_dim),
               .scale = a.scale,
               .causal = a.causal};
  args.group = args.heads / static_cast<int>(call.in[a.first_key()].cols() / a.head_dim);
  for (size_t i = 0; i < a.first_key(); ++i) {
    args.parts[i].q = call.in[i].data;
    args.parts[i].o = call.out[i].data;
    args.parts[i].q_rows = call.in[i].shape[0] / a.batch;
    args.queries += args.parts[i].q_rows;
  }
  for (size_t i = 0; i < static_cast<size_t>(a.kv_parts); ++i) {
    const TensorView& k = call.in[a.first_key() + i];
    args.parts[i].k = k.data;
    args.parts[i].v = call.in[a.first_value() + i].data;
    args.parts[i].kv_rows = k.shape[0] / a.batch;
    args.keys += args.parts[i].kv_rows;
  }
  if (args.queries == 0) return;
  const dim3 grid(static_cast<unsigned>(ceil_div(args.queries, int64_t{kWarps} * kQueries)),
                  static_cast<unsigned>(args.heads), static_cast<unsigned>(a.batch));
  with_kernel(call.in[0].dtype, a.head_dim, [&](auto* kernel, size_t bytes) {
    launch_kernel(context, kernel, grid, dim3(32 * kWarps), bytes, args);
  });
}

void softmax_rows(const SoftmaxRows& p, const LaunchContext& context) {
  if (p.rows == 0) return;
  BRAID_CHECK(p.stride % 4 == 0 && p.stride < (int64_t{1} << 30), "softmax: rows {} apart",
              p.stride);
  // Above 32,768 keys an SM has fewer rows under way, so L2 holds them between the two readings.
  const auto run = [&]<int kThreads>() {
    launch_kernel(context, softmax_kernel<kThreads>, dim3(static_cast<unsigned>(p.rows)),
                  dim3(kThreads), 0, p);
  };
  p.keys > (1 << 15) ? run.operator()<1024>() : run.operator()<256>();
}

void transpose(const Transpose& p, const LaunchContext& context) {
  if (p.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(ceil_div(p.stride, int64_t{kSide})),
                  static_cast<unsigned>(ceil_div(p.cols, int64_t{kSide})));
  launch_kernel(context, transpose_kernel, grid, dim3(kSide, 8), 0, p);
}

}  // namespace braid::cuda
