#include "braid/kernels/cuda/latent/device/plain.h"

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/latent/device/turn.cuh"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kMaxPairs = 128;

unsigned blocks_of(int64_t n, int64_t each) {
  return static_cast<unsigned>(ceil_div(n, each));
}

// A warp for each key.
template <class C>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(const __grid_constant__ LatentRowsParams p) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const bool any = __ldcg(reinterpret_cast<const long long*>(p.sequences)) > 0;
  const int len = any ? min(__ldcg(p.kv_len), p.keys) : 0;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    p.begin[0] = 0;
    p.begin[1] = len;
  }
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int key = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (key >= len) return;
  const int page = __ldcg(p.page_table + key / p.page_size);
  const int64_t slot = int64_t{page} * p.page_size + key % p.page_size;
  const C* from = static_cast<const C*>(p.cache) + slot * p.width;
  __nv_bfloat16* to = static_cast<__nv_bfloat16*>(p.out) + int64_t{key} * p.width;
  if constexpr (sizeof(C) == sizeof(__nv_bfloat16) && std::is_same_v<C, __nv_bfloat16>) {
    for (int i = lane; i < p.width / 8; i += 32) {
      reinterpret_cast<uint4*>(to)[i] = __ldcg(reinterpret_cast<const uint4*>(from) + i);
    }
  } else {
    for (int i = lane; i < p.width; i += 32) {
      to[i] = narrow<__nv_bfloat16>(widen(__ldcg(from + i)));
    }
  }
}

// A CTA for each token. All heads turn by the same angles.
__global__ void __launch_bounds__(kThreads)
    turn_kernel(const __grid_constant__ TurnQueriesParams p) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  __shared__ float2 angle[kMaxPairs];  // cos, sin
  const int64_t t = blockIdx.x;
  if (t >= __ldcg(reinterpret_cast<const long long*>(p.rows))) return;
  const int thread = static_cast<int>(threadIdx.x), D = p.nope + p.rope, pairs = p.rope / 2;
  if (thread < pairs) {
    const Turn turn(thread, p.rope, p.interleaved, __ldcg(p.positions + t), p.turns, p.factor);
    angle[thread] = {turn.cos, turn.sin};
  }
  const __nv_bfloat16* from = static_cast<const __nv_bfloat16*>(p.q) + t * p.q_stride;
  __nv_bfloat16* to = static_cast<__nv_bfloat16*>(p.out) + t * p.heads * D;
  const int chunks = p.nope / 8;
  for (int i = thread; i < p.heads * chunks; i += kThreads) {
    const int at = i / chunks * D + i % chunks * 8;
    *reinterpret_cast<uint4*>(to + at) = __ldcg(reinterpret_cast<const uint4*>(from + at));
  }
  __syncthreads();
  for (int i = thread; i < p.heads * pairs; i += kThreads) {
    const int pair = i % pairs, at = i / pairs * D + p.nope;
    const int first = p.interleaved ? 2 * pair : pair;
    const int second = p.interleaved ? first + 1 : pair + pairs;
    const float x = widen(__ldcg(from + at + first)), y = widen(__ldcg(from + at + second));
    const float2 a = angle[pair];
    to[at + first] = narrow<__nv_bfloat16>(x * a.x - y * a.y);
    to[at + second] = narrow<__nv_bfloat16>(x * a.y + y * a.x);
  }
}

// A CTA for each row of the weight.
__global__ void __launch_bounds__(kThreads)
    weight_kernel(const __grid_constant__ PlainWeightParams p) {
  const int rows = p.nope + p.rope + p.value, width = p.latent + p.rope;
  const int h = static_cast<int>(blockIdx.x) / rows, row = static_cast<int>(blockIdx.x) % rows;
  const auto* k_b = static_cast<const __nv_bfloat16*>(p.k_b) + int64_t{h} * p.nope * p.latent;
  const auto* v_b = static_cast<const __nv_bfloat16*>(p.v_b) + int64_t{h} * p.value * p.latent;
  __nv_bfloat16* to = static_cast<__nv_bfloat16*>(p.out) + int64_t{blockIdx.x} * width;
  for (int c = static_cast<int>(threadIdx.x); c < width; c += kThreads) {
    __nv_bfloat16 x = narrow<__nv_bfloat16>(0.0f);
    if (row >= p.nope && row < p.nope + p.rope) {
      if (c == p.latent + row - p.nope) x = narrow<__nv_bfloat16>(1.0f);
    } else if (c < p.latent) {
      x = row >= p.nope  ? v_b[int64_t{row - p.nope - p.rope} * p.latent + c]
          : p.transposed ? k_b[int64_t{c} * p.nope + row]
                         : k_b[int64_t{row} * p.latent + c];
    }
    to[c] = x;
  }
}

}  // namespace

void latent_rows(const LatentRowsParams& p, LaunchContext context) {
  const auto run = [&](auto* kernel) {
    launch_kernel(context, kernel, dim3(blocks_of(p.keys, kWarps)), dim3(kThreads), 0, p);
  };
  if (p.cache_dtype == DType::bf16) return run(rows_kernel<__nv_bfloat16>);
  p.cache_dtype == DType::f16 ? run(rows_kernel<__half>) : run(rows_kernel<float>);
}

void turn_queries(const TurnQueriesParams& p, LaunchContext context) {
  BRAID_CHECK(p.rope / 2 <= kMaxPairs, "{} rotated columns", p.rope);
  launch_kernel(context, turn_kernel, dim3(static_cast<unsigned>(p.tokens)), dim3(kThreads), 0, p);
}

void plain_weight(const PlainWeightParams& p, cudaStream_t stream) {
  const int rows = p.heads * (p.nope + p.rope + p.value);
  launch_kernel({.stream = stream}, weight_kernel, dim3(static_cast<unsigned>(rows)),
                dim3(kThreads), 0, p);
}

}  // namespace braid::cuda
