#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "braid/kernels/cuda/linear/device/cluster_launch.h"
#include "braid/kernels/cuda/linear/device/panel_blocks.cuh"
#include "braid/kernels/cuda/linear/device/panel_wide.cuh"
#include "braid/kernels/cuda/ptx/load.h"

namespace braid::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__device__ inline uint32_t half_to_bf16(uint32_t pair) {
  const float2 f = __half22float2(*reinterpret_cast<const __half2*>(&pair));
  return ptx::pack<__nv_bfloat16>(f.x, f.y);
}

// A warp's share: groups first and first + 8 of the panel, and every ways-th step (of
// 32 elements) from `way` on. Byte offsets count from a stage's begin to this lane's
// data.
struct PanelShare {
  int first, way, ways, steps;
  uint32_t w, half, next_group, slab, x;

  __device__ PanelShare(const PanelArgs& a, const PanelSlab& slab_of_row, bool plain) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) & 31;
    const int matrix = lane >> 3, row = lane & 7;
    const PanelLayout layout(a, slab_of_row.pitch, plain);
    ways = panel_ways(a.config.groups, a.p.m);
    first = warp % (kPanelWarps / ways);
    way = warp / (kPanelWarps / ways);
    steps = a.config.slabs * (slab_of_row.elems / 32);
    w = first * layout.group_bytes;
    // ldmatrix wants the rows of both halves, 16 bytes each; blocks are read row by row.
    w += plain ? (matrix & 1) * layout.half_bytes + row * 128 + (((matrix >> 1) ^ row) << 4)
               : (lane >> 2) * slab_of_row.pitch;
    half = layout.half_bytes;
    next_group = kPanelWarps * layout.group_bytes;
    slab = layout.slab_bytes;
    x = a.smem.x + row * 128 + ((matrix ^ row) << 4);
    for (uint32_t* offset : {&w, &half, &next_group, &slab, &x}) ptx::keep(*offset);
  }
};

// x in a step: b[tile] serves two mma. Rows with 128 bytes have two steps, swizzled.
template <int kTiles>
__device__ inline void panel_load_x(const PanelShare& share, uint32_t stage, int step,
                                    uint32_t (&b)[kTiles][4]) {
  const uint32_t x = (stage + share.x + (step >> 1) * (kTiles * 1024)) ^ (step & 1) << 6;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) ptx::ldmatrix_x4(b[t], x + t * 1024);
}

// acc += the warp's share of a stage of 16-bit weights, in kGroups groups, times x.
template <DType kType, int kTiles, int kGroups>
__device__ inline void panel_multiply(const PanelShare& share, uint32_t stage,
                                      float (&acc)[kPanelWarpGroups][kTiles][4]) {
#pragma unroll 2
  for (int step = share.way; step < share.steps; step += share.ways) {
    uint32_t b[kTiles][4];
    panel_load_x<kTiles>(share, stage, step, b);
    const uint32_t w = (stage + share.w + (step >> 1) * share.slab) ^ (step & 1) << 6;
#pragma unroll
    for (int u = 0; u < kGroups; ++u) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t r[4];
        ptx::ldmatrix_x4(r, (w ^ half << 5) + u * share.next_group);
        if constexpr (kType == DType::f16) {
#pragma unroll
          for (uint32_t& pair : r) pair = half_to_bf16(pair);
        }
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          ptx::mma_16816<__nv_bfloat16>(acc[u][t], r, b[t][2 * half], b[t][2 * half + 1]);
        }
      }
    }
  }
}

// The same for weights in blocks: products of integers, multiplied by the groups' scales. Sums of
// x, for a group's common terms, come from a matrix of ones.
template <DType kType, int kTiles, int kGroups>
__device__ inline void panel_multiply_blocks(const PanelShare& share, int first_slab,
                                             uint32_t stage,
                                             float (&acc)[kPanelWarpGroups][kTiles][4]) {
  using Blocks = PanelBlocks<kType>;
  constexpr PanelSlab kSlab = panel_slab(kType);
  constexpr int kSteps = kSlab.elems / 32;
  const int t = static_cast<int>(threadIdx.x) & 3;
#pragma unroll 2
  for (int step = share.way; step < share.steps; step += share.ways) {
    uint32_t b[kTiles][4];
    panel_load_x<kTiles>(share, stage, step, b);
    const auto slab = static_cast<uint32_t>(step) / kSteps;
    const int s = step & (kSteps - 1);
    uint32_t w = stage + share.w + slab * share.slab;
    if constexpr (kSlab.stride % 16 != 0) w += (first_slab + slab) * kSlab.stride & 15;
    float sums[kTiles][4];
    if constexpr (Blocks::kMin) {
      constexpr uint32_t kOnes[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        sums[j][0] = sums[j][1] = sums[j][2] = sums[j][3] = 0;
        ptx::mma_16816<__nv_bfloat16>(sums[j], kOnes, b[j][0], b[j][1]);
        ptx::mma_16816<__nv_bfloat16>(sums[j], kOnes, b[j][2], b[j][3]);
      }
    }
#pragma unroll
    for (int u = 0; u < kGroups; ++u) {
      constexpr int kScales = Blocks::kGroups;
      const uint32_t row = w + u * share.next_group;
      float scale[2][kScales], zero[2];
      const uint4 w0 = Blocks::load(row, s, t, scale[0], &zero[0]);
      const uint4 w1 = Blocks::load(row + share.half, s, t, scale[1], &zero[1]);
      const uint32_t r[2][4] = {{w0.x, w1.x, w0.y, w1.y}, {w0.z, w1.z, w0.w, w1.w}};
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        float part[kScales][4] = {};
        ptx::mma_16816<__nv_bfloat16>(part[0], r[0], b[j][0], b[j][1]);
        ptx::mma_16816<__nv_bfloat16>(part[kScales - 1], r[1], b[j][2], b[j][3]);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
#pragma unroll
          for (int i = 0; i < kScales; ++i) acc[u][j][e] += scale[e / 2][i] * part[i][e];
          if constexpr (Blocks::kMin) acc[u][j][e] += zero[e / 2] * sums[j][e];
        }
      }
    }
  }
}

// The stages of a warp with kGroups groups.
template <DType kType, int kTiles, int kGroups>
__device__ inline void panel_consume(const PanelArgs& a, const PanelWork& work,
                                     const PanelShare& share, uint32_t begin, const PanelRing& ring,
                                     float (&acc)[kPanelWarpGroups][kTiles][4]) {
  int stage = 0;
  uint32_t parity = 0, at = begin;
  // An earlier trigger would only delay this launch, except for keys (panel_config.cc).
  const int trigger = work.k_count - a.config.trigger;
  if (trigger <= 0) ptx::grid_launch_dependents();
  for (int i = 0; i < work.k_count; ++i) {
    if (i == trigger) ptx::grid_launch_dependents();
    ptx::mbarrier_wait(&ring.full[stage], parity);
    if constexpr (kGroups > 0 && (kType == DType::bf16 || kType == DType::f16)) {
      panel_multiply<kType, kTiles, kGroups>(share, at, acc);
    } else if constexpr (kGroups > 0) {
      panel_multiply_blocks<kType, kTiles, kGroups>(share, (work.k_begin + i) * a.config.slabs, at,
                                                    acc);
    }
    __syncwarp();
    if ((threadIdx.x & 31) == 0) ptx::mbarrier_arrive(&ring.empty[stage]);
    at += a.smem.stage;
    if (++stage == a.config.stages) stage = 0, parity ^= 1, at = begin;
  }
}
#endif

// y[t, n] = sum_k x[t, k] W[n, k] for up to 8 kTiles tokens, by the products of warps.
template <DType kType, int kTiles>
__global__ void __launch_bounds__(kPanelThreads, 2)
    panel_kernel(const __grid_constant__ PanelArgs a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) uint8_t smem[];
  const PanelRing ring(a, smem);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) & 31;
  const PanelWork work(a);
  const bool fetches = threadIdx.x == kPanelConsumers;
  PanelFetch<kType> fetch(a, work, smem, ring);
  if (fetches) fetch.begin();
  __syncthreads();  // all see the ring's barriers
  constexpr bool kPlain = kType == DType::bf16 || kType == DType::f16;
  const PanelShare share(a, panel_slab(kType), kPlain);
  float acc[kPanelWarpGroups][kTiles][4] = {};
  if (fetches) fetch.run();
  __syncwarp();
  ptx::grid_dependency_wait();
  // Loaded long before use.
  const int live = a.p.rows ? static_cast<int>(ptx::load_in_place(a.p.rows)) : a.p.m;
  if (warp < kPanelWarps) {
    const uint32_t begin = ptx::smem_address(smem);
    if (share.first + kPanelWarps < work.count) {
      panel_consume<kType, kTiles, 2>(a, work, share, begin, ring, acc);
    } else if (share.first < work.count) {
      panel_consume<kType, kTiles, 1>(a, work, share, begin, ring, acc);
    } else {
      panel_consume<kType, kTiles, 0>(a, work, share, begin, ring, acc);
    }
  }
  if (share.ways == 1 && a.config.split == 1) {
    if (warp == kPanelWarps) return;
#pragma unroll
    for (int u = 0; u < kPanelWarpGroups; ++u) {
      const int group = share.first + u * kPanelWarps;
      if (group < work.count) panel_finish_group<kTiles>(a, work, group, acc[u], live);
    }
    return;
  }
  __syncthreads();  // nobody reads the ring any more

  auto* sums = reinterpret_cast<float*>(smem);
  const int way_stride = 8 * kTiles * a.smem.pitch;
  if (warp < kPanelWarps) {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int u = 0; u < kPanelWarpGroups; ++u) {
      const int group = share.first + u * kPanelWarps;
      if (group >= work.count) break;
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        float* to = sums + share.way * way_stride + (8 * j + 2 * t) * a.smem.pitch + group * 16 + g;
        to[0] = acc[u][j][0];
        to[a.smem.pitch] = acc[u][j][1];
        to[8] = acc[u][j][2];
        to[a.smem.pitch + 8] = acc[u][j][3];
      }
    }
  }
  panel_finish(a, work, sums, live);
#endif
}

template <DType kType>
auto panel_instance(int tokens) {
  const int tiles = panel_tiles(tokens);
  if constexpr (kType == DType::bf16) {
    if (panel_wide(tokens)) return panel_wide_kernel<kPanelMaxTokens>;
  }
  return tiles == 1   ? panel_kernel<kType, 1>
         : tiles == 2 ? panel_kernel<kType, 2>
         : tiles == 3 ? panel_kernel<kType, 3>
                      : panel_kernel<kType, 4>;
}

template <DType kType>
void launch_panel(const PanelArgs& args, const LaunchContext& context) {
  launch_clusters(context, panel_instance<kType>(args.p.m), args.clusters, args.config.split,
                  kPanelThreads, args.smem.total, args);
}

template <DType kType>
void allow_panel_smem() {
  constexpr int kMost = kType == DType::bf16 ? kPanelMaxTokens : kPanelWarpTokens;
  for (int tokens = 8; tokens <= kMost; tokens += 8) {
    allow_all_shared_memory(panel_instance<kType>(tokens));
  }
}

}  // namespace braid::cuda
