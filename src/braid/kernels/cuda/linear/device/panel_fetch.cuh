#pragma once

#include "braid/kernels/cuda/linear/device/panel_args.h"
#include "braid/kernels/cuda/ptx/once.h"
#include "braid/kernels/cuda/ptx/tma.h"

// The work of a CTA in the panel product, and the thread that copies data to shared memory.
namespace braid::cuda {

constexpr int kPanelConsumers = 32 * kPanelWarps;
constexpr int kPanelThreads = kPanelConsumers + 32;  // and a warp that fills the ring
constexpr int kPanelWarpGroups = kPanelMaxGroups / kPanelWarps;

// A CTA's groups, all from the same part, and the CTA's share of K, in stages.
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

// Place of a group's rows in a stage: in a gated pair the second 8 rows come by another copy.
struct PanelLayout {
  int group_bytes, half_bytes, slab_bytes;

  __device__ PanelLayout(const PanelArgs& a, int pitch, bool slabs_in_copy) {
    const int rows = 8 * a.config.groups;  // in a gated copy
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
// The barriers of a CTA's ring.
struct PanelRing {
  uint64_t *full, *empty;  // [stages]

  __device__ PanelRing(const PanelArgs& a, uint8_t* smem)
      : full(reinterpret_cast<uint64_t*>(smem + a.smem.barriers)), empty(full + a.config.stages) {}
  // Called by a single thread.
  __device__ void init(int stages) const {
    for (int i = 0; i < stages; ++i) {
      ptx::mbarrier_init(&full[i], 1);
      ptx::mbarrier_init(&empty[i], kPanelWarps);
    }
    ptx::fence_barrier_init();
  }
};

// First byte of a slab's copy in a row: a multiple of 16, at the slab or up to 14 bytes before.
template <DType kType>
__device__ inline int panel_slab_begin(int slab) {
  return slab * panel_slab(kType).stride & ~15;
}

// A single thread fills the ring.
template <DType kType>
class PanelFetch {
 public:
  __device__ PanelFetch(const PanelArgs& a, const PanelWork& work, uint8_t* smem,
                        const PanelRing& ring)
      : a_(a), smem_(smem), ring_(ring), k_begin_(work.k_begin), k_count_(work.k_count) {
    map_ = &a.maps.w[work.part];
    row_ = work.begin * (a.p.gated ? 8 : 16);
    bytes_ = static_cast<uint32_t>(16 * a.config.groups * kSlab.pitch * a.config.slabs +
                                   a.smem.stage - a.smem.x);
  }

  // Before anything else: nobody needs to be ready for the first stages' weights, which are
  // constants.
  __device__ void begin() {
    ring_.init(a_.config.stages);
    for (int i = 0; i < first(); ++i) weights(i, i);
    ptx::prefetch_tensor_map(&a_.maps.x);
  }

  // x, once the launch ahead is done, and the other stages.
  __device__ void run() {
    ptx::grid_dependency_wait();
    for (int i = 0; i < first(); ++i) tokens(i, i);
    int stage = 0;
    uint32_t parity = 0;
    for (int i = first(); i < k_count_; ++i) {
      ptx::mbarrier_wait(&ring_.empty[stage], parity);
      weights(i, stage);
      tokens(i, stage);
      if (++stage == a_.config.stages) stage = 0, parity ^= 1;
    }
  }

 private:
  static constexpr PanelSlab kSlab = panel_slab(kType);
  static constexpr bool kSlabsInCopy = kType == DType::bf16 || kType == DType::f16;

  __device__ int first() const { return min(a_.config.stages, k_count_); }

  __device__ void weights(int i, int stage) {
    const int slabs = a_.config.slabs, slab = (k_begin_ + i) * slabs;
    const PanelLayout layout(a_, kSlab.pitch, kSlabsInCopy);
    uint8_t* to = smem_ + stage * a_.smem.stage;
    uint64_t* barrier = &ring_.full[stage];
    ptx::mbarrier_arrive_expect(barrier, bytes_);
    if constexpr (kSlabsInCopy) {
      ptx::tma_load_3d(to, map_, barrier, 0, row_, slab, policy_);
      if (a_.p.gated) {
        ptx::tma_load_3d(to + layout.half_bytes, &a_.maps.w[1], barrier, 0, row_, slab, policy_);
      }
    } else {
      for (int j = 0; j < slabs; ++j, to += layout.slab_bytes) {
        const int k = panel_slab_begin<kType>(slab + j) / 2;
        ptx::tma_load_2d(to, map_, barrier, k, row_, policy_);
        if (a_.p.gated) {
          ptx::tma_load_2d(to + layout.half_bytes, &a_.maps.w[1], barrier, k, row_, policy_);
        }
      }
    }
  }

  __device__ void tokens(int i, int stage) {
    const int slabs = a_.config.slabs * (kSlab.elems / kPanelXSlab);
    ptx::tma_load_3d(smem_ + stage * a_.smem.stage + a_.smem.x, &a_.maps.x, &ring_.full[stage], 0,
                     0, (k_begin_ + i) * slabs);
  }

  const PanelArgs& a_;
  uint8_t* const smem_;
  const PanelRing& ring_;
  const int k_begin_, k_count_;
  const CUtensorMap* map_;
  int row_;
  uint32_t bytes_;
  const uint64_t policy_ = ptx::evict_first_policy();
};
#endif

}  // namespace braid::cuda
