#pragma once

#include "braid/kernels/cuda/linear/device/panel_args.h"
#include "braid/kernels/cuda/ptx/once.h"
#include "braid/kernels/cuda/ptx/tma.h"

// What a CTA of the panel product works on, and the thread that brings it to shared memory.
namespace braid::cuda {

constexpr int kPanelConsumers = 32 * kPanelWarps;
constexpr int kPanelThreads = kPanelConsumers + 32;  // and a warp that fills the ring
constexpr int kPanelWarpGroups = kPanelMaxGroups / kPanelWarps;

// The groups of a CTA, all of one part, and its share of K, in stages.
struct PanelWork {
  int part, begin, count;
  int k_begin, k_count;

  __device__ explicit PanelWork(const PanelArgs& a) {
    const int split = a.config.split, rank = static_cast<int>(blockIdx.x) % split;
    int panel = static_cast<int>(blockIdx.x) / split;
    for (part = 0; panel >= a.panels[part]; ++part) panel -= a.panels[part];
    const int rows = a.p.gated ? 8 : 16;
    begin = panel * a.config.groups;
    count = min(a.config.groups, (a.p.parts[part].n + rows - 1) / rows - begin);
    k_begin = a.k_stages * rank / split;
    k_count = a.k_stages * (rank + 1) / split - k_begin;
  }
};

// Where in a stage a group's rows are: of a gated pair the second 8 are another copy's.
struct PanelLayout {
  int group_bytes, half_bytes, slab_bytes;

  __device__ PanelLayout(const PanelArgs& a, int pitch, bool slabs_in_copy) {
    const int rows = 8 * a.config.groups;  // of a gated copy
    group_bytes = (a.p.gated ? 8 : 16) * pitch;
    slab_bytes = 2 * rows * pitch;
    half_bytes = 8 * pitch;
    if (a.p.gated) {
      half_bytes = rows * pitch * (slabs_in_copy ? a.config.slabs : 1);
      if (slabs_in_copy) slab_bytes = rows * pitch;
    }
  }
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// The barriers of a CTA's ring, ready for all its threads.
struct PanelRing {
  uint64_t *full, *empty;  // [stages]

  __device__ PanelRing(const PanelArgs& a, uint8_t* smem)
      : full(reinterpret_cast<uint64_t*>(smem + a.smem.barriers)), empty(full + a.config.stages) {
    if (threadIdx.x == kPanelConsumers) {
      for (int i = 0; i < a.config.stages; ++i) {
        ptx::mbarrier_init(&full[i], 1);
        ptx::mbarrier_init(&empty[i], kPanelWarps);
      }
      ptx::fence_barrier_init();
    }
    __syncthreads();
  }
};

// Byte of a row at which the copy of a slab begins: a multiple of 16, the slab or up to 14 before.
template <DType kType>
__device__ inline int panel_slab_begin(int slab) {
  return slab * panel_slab(kType).stride & ~15;
}

// One thread's work. Weights are constants: the ring is full of them before the wait for x.
template <DType kType>
__device__ inline void panel_fill(const PanelArgs& a, const PanelWork& work, uint8_t* smem,
                                  const PanelRing& ring) {
  constexpr PanelSlab kSlab = panel_slab(kType);
  constexpr bool kSlabsInCopy = kType == DType::bf16 || kType == DType::f16;
  const int slabs = a.config.slabs, stages = a.config.stages;
  const PanelLayout layout(a, kSlab.pitch, kSlabsInCopy);
  const int row = work.begin * (a.p.gated ? 8 : 16);
  const auto bytes =
      static_cast<uint32_t>(16 * a.config.groups * kSlab.pitch * slabs + a.smem.stage - a.smem.x);
  const uint64_t policy = ptx::evict_first_policy();
  const CUtensorMap* map = &a.maps.w[work.part];
  const auto weights = [&](int i, int stage) {
    const int slab = (work.k_begin + i) * slabs;
    uint8_t* to = smem + stage * a.smem.stage;
    uint64_t* barrier = &ring.full[stage];
    ptx::mbarrier_arrive_expect(barrier, bytes);
    if constexpr (kSlabsInCopy) {
      ptx::tma_load_3d(to, map, barrier, 0, row, slab, policy);
      if (a.p.gated) {
        ptx::tma_load_3d(to + layout.half_bytes, &a.maps.w[1], barrier, 0, row, slab, policy);
      }
    } else {
      for (int j = 0; j < slabs; ++j, to += layout.slab_bytes) {
        const int k = panel_slab_begin<kType>(slab + j) / 2;
        ptx::tma_load_2d(to, map, barrier, k, row, policy);
        if (a.p.gated) {
          ptx::tma_load_2d(to + layout.half_bytes, &a.maps.w[1], barrier, k, row, policy);
        }
      }
    }
  };
  const int x_slabs = slabs * (kSlab.elems / kPanelXSlab);
  const auto tokens = [&](int i, int stage) {
    ptx::tma_load_3d(smem + stage * a.smem.stage + a.smem.x, &a.maps.x, &ring.full[stage], 0, 0,
                     (work.k_begin + i) * x_slabs);
  };
  const int first = min(stages, work.k_count);
  for (int i = 0; i < first; ++i) weights(i, i);
  ptx::prefetch_tensor_map(&a.maps.x);
  ptx::grid_dependency_wait();
  for (int i = 0; i < first; ++i) tokens(i, i);
  int stage = 0;
  uint32_t parity = 0;
  for (int i = first; i < work.k_count; ++i) {
    ptx::mbarrier_wait(&ring.empty[stage], parity);
    weights(i, stage);
    tokens(i, stage);
    if (++stage == stages) stage = 0, parity ^= 1;
  }
}
#endif

}  // namespace braid::cuda
