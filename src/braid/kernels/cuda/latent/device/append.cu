#include "braid/kernels/cuda/latent/device/latent.h"
#include "braid/kernels/cuda/latent/device/turn.cuh"
#include "braid/kernels/cuda/pointwise/device/operand.h"
#include "braid/kernels/cuda/pointwise/device/reduce.cuh"
#include "braid/kernels/cuda/pointwise/device/vector.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kEach = (kMaxLatent + kThreads - 1) / kThreads;

struct Args {
  const __nv_bfloat16* kv;  // [T, kv_stride]
  int64_t kv_stride;
  const void* norm;
  DType norm_dtype;
  const int32_t *positions, *slots;
  void* cache;  // [slots, R + Dr]
  const uint64_t* turns;
  int R, Dr;
  float eps, factor;
  bool interleaved;
  const int64_t* rows;
};

// A CTA for each token.
template <class C>
__global__ void __launch_bounds__(kThreads) append_kernel(const __grid_constant__ Args a) {
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t t = blockIdx.x;
  ptx::grid_launch_dependents();
  float norm[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    float w[1] = {0};
    if (thread + i * kThreads < a.R) load_constant(a.norm, a.norm_dtype, thread + i * kThreads, w);
    norm[i] = w[0];
  }
  ptx::grid_dependency_wait();
  if (a.rows && t >= __ldcg(reinterpret_cast<const long long*>(a.rows))) return;
  const int slot = __ldcg(a.slots + t);
  if (slot < 0) return;
  const auto load = [&](int i) { return widen(__ldcg(a.kv + t * a.kv_stride + i)); };
  float x[kEach], squares = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int at = thread + i * kThreads;
    x[i] = at < a.R ? load(at) : 0;
    squares += x[i] * x[i];
  }
  const float scale = rsqrtf(sum_cta(squares, thread, kThreads) / static_cast<float>(a.R) + a.eps);
  C* to = static_cast<C*>(a.cache) + static_cast<int64_t>(slot) * (a.R + a.Dr);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int at = thread + i * kThreads;
    if (at < a.R) to[at] = narrow<C>(x[i] * scale * norm[i]);
  }
  const int position = __ldcg(a.positions + t);
  for (int pair = thread; pair < a.Dr / 2; pair += kThreads) {
    const Turn turn(pair, a.Dr, a.interleaved, position, a.turns, a.factor);
    const float2 y = turn.of(load(a.R + turn.first), load(a.R + turn.second));
    to[a.R + turn.first] = narrow<C>(y.x);
    to[a.R + turn.second] = narrow<C>(y.y);
  }
}

}  // namespace

void latent_append(const LatentAppendParams& p, LaunchContext context) {
  require_matrix("latent_append", "kv", p.kv, {DType::bf16});
  const ops::RopeAttrs& rope = p.attrs.rope;
  const Args args = {.kv = p.kv.as<const __nv_bfloat16>(),
                     .kv_stride = p.kv.row_bytes / 2,
                     .norm = p.norm.data,
                     .norm_dtype = p.norm.dtype,
                     .positions = p.positions,
                     .slots = p.slots,
                     .cache = p.cache.data,
                     .turns = p.turns,
                     .R = static_cast<int>(p.norm.cols()),
                     .Dr = static_cast<int>(rope.head_dim),
                     .eps = p.attrs.eps,
                     .factor = rope.attention_factor,
                     .interleaved = rope.pairing == ops::RopePairing::interleaved,
                     .rows = p.rows};
  if (args.R > kMaxLatent) {
    fail(ErrorCode::kUnsupported, "latent_append: latents of {}, at most {}", args.R, kMaxLatent);
  }
  const int64_t T = p.kv.shape[0];
  if (T == 0) return;
  const auto run = [&](auto* kernel) {
    launch_kernel(context, kernel, dim3(static_cast<unsigned>(T)), dim3(kThreads), 0, args);
  };
  if (p.cache.dtype == DType::bf16) return run(append_kernel<__nv_bfloat16>);
  p.cache.dtype == DType::f16 ? run(append_kernel<__half>) : run(append_kernel<float>);
}

}  // namespace braid::cuda
