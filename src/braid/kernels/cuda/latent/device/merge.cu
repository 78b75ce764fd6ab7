#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "braid/kernels/cuda/latent/device/latent_args.h"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/ptx/mma.h"

namespace braid::cuda {
namespace {

constexpr int kMergeThreads = 128;

// A CTA for each row adds up its shares in order.
__global__ void __launch_bounds__(kMergeThreads)
    merge_kernel(const __grid_constant__ LatentArgs a) {
  __shared__ float weight[kMaxLatentShares];
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const LatentParams& p = a.p;
  const int64_t all = static_cast<int64_t>(p.tokens) * p.heads, row = blockIdx.x;
  const auto live = p.sequences ? __ldcg(reinterpret_cast<const long long*>(p.sequences))
                                : static_cast<long long>(p.max_sequences);
  if (row >= static_cast<int64_t>(__ldcg(p.q_start + live) - p.first_token) * p.heads) return;
  const auto* states = reinterpret_cast<const float2*>(p.partial + a.shares * all * p.latent);
  if (threadIdx.x == 0) {
    float top = -INFINITY, sum = 0;
    for (int s = 0; s < a.shares; ++s) top = fmaxf(top, __ldcg(states + s * all + row).x);
    for (int s = 0; s < a.shares; ++s) {
      const float2 state = __ldcg(states + s * all + row);
      weight[s] = state.x == -INFINITY && state.y == 0 ? 0 : exp2f(state.x - top);
      sum += weight[s] * state.y;
    }
    for (int s = 0; s < a.shares; ++s) weight[s] /= sum;
  }
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < p.latent / 2; c += kMergeThreads) {
    float2 y = {0, 0};
#pragma unroll 4
    for (int s = 0; s < a.shares; ++s) {
      // A share without keys has stored no sums.
      if (weight[s] == 0) continue;
      const float2 x =
          __ldcg(reinterpret_cast<const float2*>(p.partial + (s * all + row) * p.latent) + c);
      y.x += weight[s] * x.x;
      y.y += weight[s] * x.y;
    }
    reinterpret_cast<uint32_t*>(static_cast<__nv_bfloat16*>(p.out) + row * p.latent)[c] =
        ptx::pack<__nv_bfloat16>(y.x, y.y);
  }
}

__global__ void transpose_kernel(const __nv_bfloat16* w, __nv_bfloat16* out, int rows, int cols) {
  __shared__ __nv_bfloat16 tile[32][33];
  const int64_t head = static_cast<int64_t>(blockIdx.z) * rows * cols;
  const int row = static_cast<int>(blockIdx.y) * 32, col = static_cast<int>(blockIdx.x) * 32;
  const int x = static_cast<int>(threadIdx.x);
  for (int y = static_cast<int>(threadIdx.y); y < 32; y += 8) {
    if (row + y < rows && col + x < cols) tile[y][x] = w[head + (row + y) * cols + col + x];
  }
  __syncthreads();
  for (int y = static_cast<int>(threadIdx.y); y < 32; y += 8) {
    if (col + y < cols && row + x < rows) out[head + (col + y) * rows + row + x] = tile[x][y];
  }
}

}  // namespace

void prepare_latent_attention(const LatentDevice& device) {
  const auto bytes = static_cast<size_t>(device.shared_bytes - kLatentStaticBytes);
  allow_latent_smem<__nv_bfloat16>(bytes);
  allow_latent_smem<__half>(bytes);
  allow_latent_smem<float>(bytes);
}

void latent_attention(const LatentParams& p, const LatentConfig& config, LaunchContext context) {
  const LatentShape shape = {.tokens = p.tokens,
                             .sequences = p.max_sequences,
                             .heads = p.heads,
                             .latent = p.latent,
                             .rope = p.rope};
  if (p.tokens == 0 || p.max_sequences == 0) return;
  const LatentArgs args = {.p = p,
                           .shares = config.shares,
                           .blocks = static_cast<int>(latent_blocks(shape, config.rows))};
  if (p.cache_dtype == DType::bf16) {
    launch_latent<__nv_bfloat16>(args, config, context);
  } else if (p.cache_dtype == DType::f16) {
    launch_latent<__half>(args, config, context);
  } else {
    launch_latent<float>(args, config, context);
  }
  if (config.shares == 1) return;
  context.pdl = true;
  launch_kernel(context, merge_kernel, dim3(static_cast<unsigned>(p.tokens * p.heads)),
                dim3(kMergeThreads), 0, args);
}

void transpose_heads(const void* w, void* out, int heads, int rows, int cols, cudaStream_t stream) {
  const auto tiles = [](int n) { return static_cast<unsigned>((n + 31) / 32); };
  launch_kernel({stream}, transpose_kernel,
                dim3(tiles(cols), tiles(rows), static_cast<unsigned>(heads)), dim3(32, 8), 0,
                static_cast<const __nv_bfloat16*>(w), static_cast<__nv_bfloat16*>(out), rows, cols);
}

}  // namespace braid::cuda
