#pragma once

#include "braid/kernels/cuda/linear/device/output.cuh"
#include "braid/kernels/cuda/linear/device/skinny_fetch.cuh"

// The end of a tile's sums: the cluster's sums merge, then bias, gate, residual.
namespace braid::cuda {

// Bias and residual for rows r and r + 8 in a tile for a token, loaded during the tile.
__device__ inline float2 skinny_addends(const SkinnyArgs& args, const SkinnyWork& work, int tile,
                                        int r, int64_t token) {
  const auto load = [&](const SkinnyRow& row) {
    if (row.part < 0) return 0.f;
    float sum = load_bias(args.p.parts[row.part], row.column);
    if (args.p.residual != nullptr) {
      sum += __ldcg(args.p.residual + token * args.p.residual_stride + row.column);
    }
    return sum;
  };
  return {load({args, work, tile, r}), load({args, work, tile, r + 8})};
}

__device__ inline void skinny_finish(const SkinnyArgs& args, const SkinnyWork& work, int tile,
                                     int r, int64_t token, float2 y) {
  const SkinnyRow first(args, work, tile, r);
  if (first.part < 0) return;
  if (args.p.gated) {
    store_y(args.p.parts[0], token, first.column, activate(args.gelu, y.x) * y.y);
    return;
  }
  store_y(args.p.parts[first.part], token, first.column, y.x);
  const SkinnyRow second(args, work, tile, r + 8);
  if (second.part >= 0) store_y(args.p.parts[second.part], token, second.column, y.y);
}

__device__ inline float inverse_rms(const SkinnyArgs& args, const uint8_t* smem, int token) {
  if (!args.p.normed) return 1;
  const auto* squares = reinterpret_cast<const float*>(smem + args.smem.squares);
  float sum = 0;
  for (int w = 0; w < kSkinnyWarps; ++w) sum += squares[w * kSkinnyMaxTokens + token];
  return rsqrtf(sum / static_cast<float>(args.p.k) + args.p.norm.eps);
}

__device__ inline void skinny_scale_and_store(const SkinnyArgs& args, const SkinnyWork& work,
                                              const uint8_t* smem, int tile, int r, int token,
                                              float2 y, float2 addends) {
  const float scale = inverse_rms(args, smem, token);
  y.x = y.x * scale + addends.x;
  y.y = y.y * scale + addends.y;
  skinny_finish(args, work, tile, r, args.row_begin + token, y);
}

// Adds up a tile over the same warp of the cluster's CTAs, in CTA order. CTA c gets the sums of
// tokens [c, c + 1) * share; other tokens' sums in `acc` are of no use afterwards.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__device__ inline void skinny_exchange(const SkinnyArgs& args, uint8_t* smem,
                                       const SkinnyBarriers& barriers, int use, float (&acc)[4]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const int share = 8 / args.cluster;
  const int rank = blockIdx.x % args.cluster;
  uint64_t* received = barriers.received + warp;
  uint64_t* consumed = barriers.consumed + warp;
  // [cluster, share, 8] for this warp
  auto* slots = reinterpret_cast<float2*>(smem + args.smem.exchange) + warp * 64;
  if (lane == 0) ptx::mbarrier_arrive_expect(received, (args.cluster - 1) * share * 64);
  if (use > 0) ptx::mbarrier_wait_cluster(consumed, (use - 1) & 1);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int token = 2 * t + h, owner = token / share;
    if (owner == rank) continue;
    ptx::store_async_f32x2(
        ptx::cluster_address(slots + (rank * share + token % share) * 8 + g, owner), acc[h],
        acc[2 + h], ptx::cluster_address(received, owner));
  }
  ptx::mbarrier_wait_cluster(received, use & 1);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int token = 2 * t + h;
    if (token / share != rank) continue;
    float2 sum{0, 0};
    for (int c = 0; c < args.cluster; ++c) {
      const float2 part =
          c == rank ? float2{acc[h], acc[2 + h]} : slots[(c * share + token % share) * 8 + g];
      sum.x += part.x;
      sum.y += part.y;
    }
    acc[h] = sum.x;
    acc[2 + h] = sum.y;
  }
  __syncwarp();
  if (lane < args.cluster) ptx::mbarrier_arrive_remote(ptx::cluster_address(consumed, lane));
}
#endif

}  // namespace braid::cuda
