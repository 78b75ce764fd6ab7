#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "braid/kernels/cuda/linear/device/output.cuh"
#include "braid/kernels/cuda/linear/device/stream_linear.h"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/ptx/load.h"
#include "braid/kernels/cuda/ptx/mma.h"
#include "braid/ops/linear.h"

namespace braid::cuda {
namespace {

constexpr int kThreads = 32 * kStreamWarps;
constexpr int kInFlight = 4;  // 16-byte loads under way per lane: 64 KB for an SM

struct Args {
  SkinnyParams p;
  int units;
  int starts_bytes;  // bytes of the row table, in front of x in shared memory
};

// A CTA's rows: units [begin, end); in a gated pair the gate's rows, then the up's.
struct Rows {
  int begin, end, rows;

  __device__ explicit Rows(const Args& a) {
    const int ctas = static_cast<int>(gridDim.x), id = static_cast<int>(blockIdx.x);
    const int base = a.units / ctas, extra = a.units % ctas;
    begin = id * base + min(id, extra);
    end = begin + base + (id < extra ? 1 : 0);
    rows = (end - begin) * (a.p.gated ? 2 : 1);
  }
};

struct Place {
  int part;
  int column;
};

__device__ inline Place place_of(const Args& a, int unit) {
  int part = 0;
  if (!a.p.gated) {
    while (unit >= a.p.parts[part].n) unit -= a.p.parts[part++].n;
  }
  return {part, unit};
}

__device__ inline const uint8_t* row_of(const Args& a, const Rows& rows, int row) {
  Place at = place_of(a, rows.begin + (a.p.gated ? row >> 1 : row));
  if (a.p.gated) at.part = row & 1;
  const SkinnyPart& part = a.p.parts[at.part];
  return static_cast<const uint8_t*>(part.w) + static_cast<int64_t>(at.column) * part.row_bytes;
}

// A warp's chunks in the CTA's rows, row after row.
struct Share {
  int begin, end;
  __device__ Share(int chunks, int warp) {
    begin = static_cast<int>(int64_t{chunks} * warp / kStreamWarps);
    end = static_cast<int>(int64_t{chunks} * (warp + 1) / kStreamWarps);
  }
};

// A warp's weights in the order of multiplication. `starts` [rows] has the rows' begins.
struct Walk {
  const uint8_t* const* starts;
  int k, per_row, left, chunk, row;
  const uint8_t* at = nullptr;

  __device__ Walk(const uint8_t* const* row_starts, int k_elems, int chunks_of_row,
                  const Share& share)
      : starts(row_starts), k(k_elems), per_row(chunks_of_row), left(share.end - share.begin) {
    row = share.begin / per_row;
    chunk = share.begin % per_row;
    if (left > 0) at = starts[row] + chunk * 512 + lane() * 16;
  }
  // This lane's next 16 bytes, zeros past the end of a row or the share.
  __device__ uint4 next() {
    uint4 w = {};
    if (left <= 0) return w;
    if (in_row()) w = ptx::load_once(reinterpret_cast<const uint4*>(at));
    go_on();
    return w;
  }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) & 31; }
  __device__ bool in_row() const { return chunk * kStreamChunk + lane() * 8 < k; }
  __device__ void go_on() {
    at += 512;
    --left;
    if (++chunk == per_row && left > 0) {
      chunk = 0;
      at = starts[++row] + lane() * 16;
    }
  }
};

// Weights 4 i to 4 i + 3 of the norm.
__device__ inline float4 norm_weights(const SkinnyNorm& n, int i) {
  if (n.w_dtype == DType::f32) return static_cast<const float4*>(n.w)[i];
  if (n.w_dtype == DType::bf16) {
    const uint2 w = static_cast<const uint2*>(n.w)[i];
    return {ptx::low_half(w.x), ptx::high_half(w.x), ptx::low_half(w.y), ptx::high_half(w.y)};
  }
  const auto* w = static_cast<const __half*>(n.w) + 4 * i;
  return {__half2float(w[0]), __half2float(w[1]), __half2float(w[2]), __half2float(w[3])};
}

// x of the live tokens in shared memory, bf16 [tokens, pitch]. With a norm x is (a + b) w, and the
// scale waits until the end: squares [tokens, warps] receives each warp's sum of (a + b)^2.
__device__ inline void load_x(const Args& a, int live, uint8_t* x, int64_t pitch, float* squares) {
  const SkinnyParams& p = a.p;
  const int tid = static_cast<int>(threadIdx.x);
  for (int t = 0; t < live; ++t) {
    auto* row = reinterpret_cast<uint2*>(x + t * pitch);
    for (int i = p.k / 4 + tid; i < pitch / 8; i += kThreads) row[i] = {};
    if (!p.normed) {
      if (p.x_dtype == DType::bf16) {
        const auto* from =
            reinterpret_cast<const uint2*>(static_cast<const __nv_bfloat16*>(p.x) + t * p.x_stride);
        for (int i = tid; i < p.k / 4; i += kThreads) row[i] = __ldcg(from + i);
      } else {
        const auto* from =
            reinterpret_cast<const float4*>(static_cast<const float*>(p.x) + t * p.x_stride);
        for (int i = tid; i < p.k / 4; i += kThreads) {
          const float4 v = __ldcg(from + i);
          row[i] = {ptx::pack<__nv_bfloat16>(v.x, v.y), ptx::pack<__nv_bfloat16>(v.z, v.w)};
        }
      }
      continue;
    }
    const SkinnyNorm& n = p.norm;
    const auto* first = reinterpret_cast<const float4*>(n.a + t * n.a_stride);
    const auto* second = reinterpret_cast<const uint2*>(
        n.b ? static_cast<const __nv_bfloat16*>(n.b) + t * n.b_stride : nullptr);
    float sum = 0;
#pragma unroll 2
    for (int i = tid; i < p.k / 4; i += kThreads) {
      float4 v = __ldcg(first + i);
      if (second != nullptr) {
        const uint2 b = __ldcg(second + i);
        v.x += ptx::low_half(b.x);
        v.y += ptx::high_half(b.x);
        v.z += ptx::low_half(b.y);
        v.w += ptx::high_half(b.y);
      }
      sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
      if (n.sum != nullptr && blockIdx.x == 0) {
        reinterpret_cast<float4*>(n.sum + t * n.sum_stride)[i] = v;
      }
      const float4 w = norm_weights(n, i);
      row[i] = {ptx::pack<__nv_bfloat16>(v.x * w.x, v.y * w.y),
                ptx::pack<__nv_bfloat16>(v.z * w.z, v.w * w.w)};
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffff, sum, mask);
    if (tid % 32 == 0) squares[t * kStreamWarps + tid / 32] = sum;
  }
}

// Eight products with bf16 operands, in f32.
__device__ inline float dot(const uint4& w, const uint4& x, float sum) {
  sum = fmaf(ptx::low_half(w.x), ptx::low_half(x.x), sum);
  sum = fmaf(ptx::high_half(w.x), ptx::high_half(x.x), sum);
  sum = fmaf(ptx::low_half(w.y), ptx::low_half(x.y), sum);
  sum = fmaf(ptx::high_half(w.y), ptx::high_half(x.y), sum);
  sum = fmaf(ptx::low_half(w.z), ptx::low_half(x.z), sum);
  sum = fmaf(ptx::high_half(w.z), ptx::high_half(x.z), sum);
  sum = fmaf(ptx::low_half(w.w), ptx::low_half(x.w), sum);
  return fmaf(ptx::high_half(w.w), ptx::high_half(x.w), sum);
}

// y[t, n] = sum_k x[t, k] W[n, k] for kTokens tokens.
template <int kTokens>
__global__ __launch_bounds__(kThreads, 4) void stream_kernel(const __grid_constant__ Args a) {
  extern __shared__ __align__(128) uint8_t smem[];
  __shared__ float squares[kStreamMaxTokens * kStreamWarps];
  const int lane = static_cast<int>(threadIdx.x) & 31, warp = static_cast<int>(threadIdx.x) / 32;
  const Rows rows(a);
  const int per_row = (a.p.k + kStreamChunk - 1) / kStreamChunk;
  const Share share(rows.rows * per_row, warp);
  ptx::grid_launch_dependents();

  // Constants first: each warp's first weights.
  auto* starts = reinterpret_cast<const uint8_t**>(smem);
  for (int r = static_cast<int>(threadIdx.x); r < rows.rows; r += kThreads) {
    starts[r] = row_of(a, rows, r);
  }
  __syncthreads();
  Walk walk(starts, a.p.k, per_row, share);
  uint4 flying[kInFlight];
#pragma unroll
  for (int i = 0; i < kInFlight; ++i) flying[i] = walk.next();

  ptx::grid_dependency_wait();
  const int live = a.p.rows ? static_cast<int>(*a.p.rows) : a.p.m;
  const int64_t pitch = stream_pitch(a.p.k);
  uint8_t* xs = smem + a.starts_bytes;
  load_x(a, live, xs, pitch, squares);
  __syncthreads();

  auto* sums = reinterpret_cast<float*>(xs + a.p.m * pitch);  // [rows, warps, m]
  float acc[kTokens] = {};
  int row = share.begin / per_row, chunk = share.begin % per_row;
  const uint8_t* x = xs + lane * 16;
  for (int done = share.begin; done < share.end; done += kInFlight) {
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const uint4 w = flying[i];
      flying[i] = walk.next();
      if (done + i >= share.end) continue;
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        if (t < live) {
          acc[t] = dot(w, *reinterpret_cast<const uint4*>(x + t * pitch + chunk * 512), acc[t]);
        }
      }
      if (++chunk == per_row || done + i + 1 == share.end) {
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
#pragma unroll
          for (int mask = 16; mask > 0; mask /= 2) {
            acc[t] += __shfl_xor_sync(0xffffffff, acc[t], mask);
          }
          if (lane == 0 && t < live) sums[(row * kStreamWarps + warp) * a.p.m + t] = acc[t];
          acc[t] = 0;
        }
        chunk = 0;
        ++row;
      }
    }
  }
  __syncthreads();

  // Sums over the warps that hold a row's chunks, in warp order.
  const auto total = [&](int r, int token) {
    float sum = 0;
    for (int w = 0; w < kStreamWarps; ++w) {
      const Share of(rows.rows * per_row, w);
      if (of.begin < (r + 1) * per_row && of.end > r * per_row && of.begin < of.end) {
        sum += sums[(r * kStreamWarps + w) * a.p.m + token];
      }
    }
    if (a.p.normed) {
      float all = 0;
      for (int w = 0; w < kStreamWarps; ++w) all += squares[token * kStreamWarps + w];
      sum *= rsqrtf(all / static_cast<float>(a.p.k) + a.p.norm.eps);
    }
    return sum;
  };
  const int units = rows.end - rows.begin;
  for (int i = static_cast<int>(threadIdx.x); i < units * live; i += kThreads) {
    const int token = i % live, unit = i / live;
    const Place at = place_of(a, rows.begin + unit);
    const SkinnyPart& part = a.p.parts[at.part];
    float y = 0;
    if (a.p.gated) {
      y = activate(a.p.activation == ops::Activation::gelu_tanh,
                   total(2 * unit, token) + load_bias(part, at.column)) *
          (total(2 * unit + 1, token) + load_bias(a.p.parts[1], at.column));
    } else {
      y = total(unit, token) + load_bias(part, at.column);
    }
    if (a.p.residual != nullptr) {
      y += __ldcg(a.p.residual + token * a.p.residual_stride + at.column);
    }
    store_y(part, token, at.column, y);
  }
}

using StreamKernel = void (*)(const Args);

StreamKernel kernel_for(int tokens) {
  return tokens == 1 ? stream_kernel<1> : tokens == 2 ? stream_kernel<2> : stream_kernel<4>;
}

}  // namespace

StreamShape stream_shape(const SkinnyParams& p) {
  StreamShape shape{.dtype = p.parts[0].dtype, .gated = p.gated, .k = p.k, .tokens = p.m};
  for (int i = 0; i < p.num_parts; ++i) {
    const SkinnyPart& part = p.parts[i];
    shape.units += part.n;
    shape.aligned = shape.aligned && part.dtype == shape.dtype && part.row_bytes % 16 == 0 &&
                    reinterpret_cast<uintptr_t>(part.w) % 16 == 0;
  }
  if (p.gated) shape.units = p.parts[0].n;
  const auto whole = [](const void* data, int64_t stride, int64_t elem_bytes) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride * elem_bytes % 16 == 0;
  };
  const int64_t x_bytes = p.x_dtype == DType::f32 ? 4 : 2;
  shape.aligned =
      shape.aligned && (p.normed ? whole(p.norm.a, p.norm.a_stride, 4) &&
                                       whole(p.norm.b, p.norm.b_stride, 2) && whole(p.norm.w, 0, 1)
                                 : whole(p.x, p.x_stride, x_bytes));
  return shape;
}

void prepare_stream_linear() {
  for (int tokens : {1, 2, 4}) allow_shared_memory(kernel_for(tokens), 54 << 10);
}

void stream_linear(const SkinnyParams& params, const StreamConfig& config, LaunchContext context) {
  const Args args{params, static_cast<int>(stream_shape(params).units),
                  stream_starts_bytes(config.rows)};
  launch_kernel(context, kernel_for(params.m), dim3(static_cast<unsigned>(config.ctas)),
                dim3(kThreads), static_cast<size_t>(config.shared_bytes), args);
}

}  // namespace braid::cuda
