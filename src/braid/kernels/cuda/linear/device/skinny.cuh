#pragma once

#include "braid/kernels/cuda/linear/device/cluster_launch.h"
#include "braid/kernels/cuda/linear/device/skinny_finish.cuh"

namespace braid::cuda {

// acc[16 rows, 8 tokens] += every step-th step of a stage from `first` on.
template <DType kType>
__device__ inline void skinny_multiply(const uint8_t* row0, const uint8_t* row1, int first,
                                       int step, int steps, const uint8_t* x, int x_pitch,
                                       const float* sums, int sums_pitch, float (&acc)[4]) {
  using Step = WeightStep<kType>;
  constexpr int kGroups = Step::kGroups;
  const int t = threadIdx.x & 3;
#pragma unroll 2
  for (int s = first; s < steps; s += step) {
    float scale[2][kGroups + 1], zero[2][kGroups + 1];
    const uint4 w0 = Step::load(row0, s, t, scale[0], zero[0]);
    const uint4 w1 = Step::load(row1, s, t, scale[1], zero[1]);
    const uint32_t a[2][4] = {{w0.x, w1.x, w0.y, w1.y}, {w0.z, w1.z, w0.w, w1.w}};
    const uint4 b = *reinterpret_cast<const uint4*>(x + s * x_pitch);
    if constexpr (kGroups == 0) {
      ptx::mma_16816<__nv_bfloat16>(acc, a[0], b.x, b.y);
      ptx::mma_16816<__nv_bfloat16>(acc, a[1], b.z, b.w);
    } else {
      float part[kGroups][4] = {};
      ptx::mma_16816<__nv_bfloat16>(part[0], a[0], b.x, b.y);
      ptx::mma_16816<__nv_bfloat16>(part[kGroups - 1], a[1], b.z, b.w);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const float2 sum = *reinterpret_cast<const float2*>(sums + (s * kGroups + g) * sums_pitch);
        acc[0] += scale[0][g] * part[g][0] + zero[0][g] * sum.x;
        acc[1] += scale[0][g] * part[g][1] + zero[0][g] * sum.y;
        acc[2] += scale[1][g] * part[g][2] + zero[1][g] * sum.x;
        acc[3] += scale[1][g] * part[g][3] + zero[1][g] * sum.y;
      }
    }
  }
}

// The warps split K: adds up their parts of a tile, in their order.
__device__ inline void skinny_join(const SkinnyArgs& args, const SkinnyWork& work, uint8_t* smem,
                                   int tile, int live, float2 addends, const float (&acc)[4]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  // Two buffers: a warp may be a tile ahead of the others.
  auto* partials =
      reinterpret_cast<float2*>(smem + args.smem.partials) + (tile & 1) * kSkinnyWarps * 64;
  float2* to = partials + warp * 64 + 16 * t + g;
  to[0] = {acc[0], acc[2]};
  to[8] = {acc[1], acc[3]};
  ptx::named_barrier_sync(1, kConsumers);
  const int pair = threadIdx.x, token = pair >> 3;  // (token, row)
  if (token >= min(args.tokens, live)) return;
  float2 y{0, 0};
#pragma unroll
  for (int w = 0; w < kSkinnyWarps; ++w) {
    const float2 part = partials[w * 64 + pair];
    y.x += part.x;
    y.y += part.y;
  }
  skinny_scale_and_store(args, work, smem, tile, pair & 7, token, y, addends);
}

// Each warp has whole tiles.
__device__ inline void skinny_store_own(const SkinnyArgs& args, const SkinnyWork& work,
                                        const uint8_t* smem, int tile, int live,
                                        const float (&acc)[4]) {
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const int share = 8 / args.cluster, rank = blockIdx.x % args.cluster;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int token = 2 * t + h;
    if (token >= min(args.tokens, live) || token / share != rank) continue;
    const float2 addends = skinny_addends(args, work, tile, g, args.row_begin + token);
    skinny_scale_and_store(args, work, smem, tile, g, token, {acc[h], acc[2 + h]}, addends);
  }
}

template <DType kType>
__global__ void __launch_bounds__(kSkinnyThreads, 2)
    skinny_kernel(const __grid_constant__ SkinnyArgs args) {
  using Step = WeightStep<kType>;
  extern __shared__ __align__(128) uint8_t smem[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  const SkinnyWork work(args);
  const SkinnyBarriers barriers(args, smem);
  ptx::grid_launch_dependents();
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  if (args.bulk) {
    for (int i = threadIdx.x; i < args.stages; i += kSkinnyThreads) {
      ptx::mbarrier_init(&barriers.full[i], 1);
      ptx::mbarrier_init(&barriers.empty[i], args.split_k ? kSkinnyWarps : 1);
    }
    if (threadIdx.x < kSkinnyWarps) {
      ptx::mbarrier_init(&barriers.received[threadIdx.x], 1);
      ptx::mbarrier_init(&barriers.consumed[threadIdx.x], args.cluster);
    }
    ptx::fence_barrier_init();
    __syncthreads();
    if (args.cluster > 1) ptx::cluster_arrive();  // others may use the barriers
    if (warp >= kSkinnyWarps) {
      skinny_produce<kType>(args, work, smem, barriers);
      if (args.cluster > 1) {
        ptx::cluster_wait();
        ptx::cluster_arrive();
        ptx::cluster_wait();
      }
      return;
    }
  }
#endif
  if (warp >= kSkinnyWarps) return;
  ptx::grid_dependency_wait();
  const int64_t* rows = args.p.rows;
  const int live =
      static_cast<int>(rows == nullptr ? args.p.m : *static_cast<const volatile int64_t*>(rows)) -
      args.row_begin;
  stage_input<Step::kGroups, Step::kSplit>(args, work.k_begin, work.k_size, live, smem);
  ptx::named_barrier_sync(1, kConsumers);

  const int g = lane >> 2, t = lane & 3;
  const int x_pitch = args.tokens * 64;
  const int sums_pitch = (args.tokens + 1) / 2 * 2;
  // Columns past the end are not read.
  const uint8_t* x = smem + args.smem.x + (min(g, args.tokens - 1) * 4 + t) * 16;
  const float* sums =
      reinterpret_cast<const float*>(smem + args.smem.sums) + min(2 * t, sums_pitch - 2);
  const int first_step = args.split_k ? warp : 0, step = args.split_k ? kSkinnyWarps : 1;
  const int first_tile = args.split_k ? 0 : warp, tile_step = args.split_k ? 1 : kSkinnyWarps;
  [[maybe_unused]] const int depth = args.split_k ? args.stages : args.stages / kSkinnyWarps;
  SkinnyPlace place{0, 0};  // over all stages, or over the warp's own
  [[maybe_unused]] int use = 0;
  for (int tile = first_tile; tile < work.num_tiles; tile += tile_step, ++use) {
    uint32_t shift[2] = {0, 0};  // of the rows' starts in shared memory
    if (args.bulk && !args.aligned) {
      shift[0] = low_bits(skinny_row<kType>(args, work, tile, g));
      shift[1] = low_bits(skinny_row<kType>(args, work, tile, g + 8));
    }
    float2 addends{0, 0};
    if (args.split_k && threadIdx.x < 8 * args.tokens) {
      addends = skinny_addends(args, work, tile, threadIdx.x & 7,
                               args.row_begin + static_cast<int>(threadIdx.x >> 3));
    }
    float acc[4] = {};
    for (int chunk = 0; chunk < work.num_chunks; ++chunk) {
      const int k = chunk * args.chunk;
      const int stage = args.split_k ? place.stage : place.stage * kSkinnyWarps + warp;
      if (args.bulk) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
        ptx::mbarrier_wait(&barriers.full[stage], place.parity);
#endif
      } else {
        ptx::named_barrier_sync(1, kConsumers);
        skinny_copy<kType>(args, work, tile, chunk, smem);
        ptx::named_barrier_sync(1, kConsumers);
      }
      const uint8_t* row0 = smem + (stage * kSkinnyTileRows + g) * args.smem.pitch;
      const uint8_t* row1 = row0 + 8 * args.smem.pitch;
      if (args.bulk && !args.aligned) {
        const auto offset = static_cast<uint32_t>(skinny_bytes<kType>(k));
        row0 += (shift[0] + offset) & 15;
        row1 += (shift[1] + offset) & 15;
      }
      skinny_multiply<kType>(row0, row1, first_step, step,
                             (min(args.chunk, work.k_size - k) + 31) / 32, x + k / 32 * x_pitch,
                             x_pitch, sums + k / 32 * Step::kGroups * sums_pitch, sums_pitch, acc);
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
      if (args.bulk) {
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(&barriers.empty[stage]);
        place.advance(1, depth);
      }
#endif
    }
    if (args.split_k) {
      skinny_join(args, work, smem, tile, live, addends, acc);
    } else {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
      if (args.cluster > 1) {
        if (use == 0) ptx::cluster_wait();  // the other CTAs and their barriers are present
        skinny_exchange(args, smem, barriers, use, acc);
      }
#endif
      skinny_store_own(args, work, smem, tile, live, acc);
    }
  }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  if (args.cluster > 1) {
    if (use == 0) ptx::cluster_wait();
    ptx::cluster_arrive();
    ptx::cluster_wait();  // others may still write here
  }
#endif
}

template <DType kType>
void launch_skinny(const SkinnyArgs& args, int clusters, const LaunchContext& context) {
  launch_clusters(context, skinny_kernel<kType>, clusters, args.cluster, kSkinnyThreads,
                  args.smem.total, args);
}

template <DType kType>
void allow_skinny_smem() {
  allow_all_shared_memory(skinny_kernel<kType>);
}

}  // namespace braid::cuda
