#pragma once

#include <cuda_bf16.h>

#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/ptx/gpu.h"
#include "braid/kernels/cuda/ptx/mma.h"
#include "braid/kernels/cuda/relay/device/relay_args.h"
#include "braid/kernels/cuda/relay/relay_layout.h"

// What the warps that multiply share: slots, words from other CTAs, steps.
namespace braid::cuda {

constexpr int kRelayThreads = 32 * kRelayWarps;  // that multiply

// Eight products with bf16 operands, in f32.
__device__ inline void add_products(const uint4& w, const uint4& x, float (&sum)[2]) {
  sum[0] = fmaf(ptx::low_half(w.x), ptx::low_half(x.x), sum[0]);
  sum[1] = fmaf(ptx::high_half(w.x), ptx::high_half(x.x), sum[1]);
  sum[0] = fmaf(ptx::low_half(w.y), ptx::low_half(x.y), sum[0]);
  sum[1] = fmaf(ptx::high_half(w.y), ptx::high_half(x.y), sum[1]);
  sum[0] = fmaf(ptx::low_half(w.z), ptx::low_half(x.z), sum[0]);
  sum[1] = fmaf(ptx::high_half(w.z), ptx::high_half(x.z), sum[1]);
  sum[0] = fmaf(ptx::low_half(w.w), ptx::low_half(x.w), sum[0]);
  sum[1] = fmaf(ptx::high_half(w.w), ptx::high_half(x.w), sum[1]);
}

// Ends the launch where words do not come, because another CTA has failed: after some seconds, as a
// try takes half a microsecond at least.
__device__ inline void lose_patience(uint32_t& tries) {
  if (++tries > 1u << 23) __trap();
}

// A warp's place in the ring, whose pieces go to the warps in turns from each step's first on.
class RelayRing {
 public:
  __device__ RelayRing(const RelayArgs& a, uint8_t* smem, const RelayLayout& layout)
      : ring_(smem + layout.ring),
        full_(reinterpret_cast<uint64_t*>(smem + layout.barriers)),
        empty_(full_ + a.slots),
        slots_(a.slots),
        warp_(threadIdx.x / 32) {}

  // Begins a step of `pieces`.
  __device__ void begin(int pieces) {
    slot_ = first_ + warp_;
    parity_ = first_parity_;
    wrap(slot_, parity_);
    first_ += pieces % slots_;
    first_parity_ ^= pieces / slots_ & 1;
    wrap(first_, first_parity_);
  }
  // This warp's next piece, when it is there.
  __device__ const uint8_t* wait() const {
    ptx::mbarrier_wait(&full_[slot_], parity_);
    return ring_ + slot_ * kRelaySlotBytes;
  }
  __device__ void release() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&empty_[slot_]);
    slot_ += kRelayWarps;
    wrap(slot_, parity_);
  }

 private:
  __device__ void wrap(int& slot, uint32_t& parity) const {
    if (slot < slots_) return;
    slot -= slots_;
    parity ^= 1;
  }

  uint8_t* const ring_;
  uint64_t* const full_;
  uint64_t* const empty_;
  const int slots_;
  const int warp_;
  int first_ = 0;  // slot of the next step's first piece
  uint32_t first_parity_ = 0;
  int slot_ = 0;
  uint32_t parity_ = 0;
};

// What a step knows of the launch.
struct RelayPlace {
  const uint2* in;  // words of the step before
  uint32_t in_tag;
  uint2* out;
  uint32_t out_tag;
};

__device__ inline void sync_workers() {
  ptx::named_barrier_sync(1, kRelayThreads);
}

}  // namespace braid::cuda
