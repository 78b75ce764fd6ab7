#pragma once

#include "braid/kernels/cuda/attention/held_items.cuh"
#include "braid/kernels/cuda/attention/hopper_launch.h"
#include "braid/kernels/cuda/attention/hopper_smem.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/ptx/system.h"

// Launches of a chain (AttentionLink) that begin during the launch before. An item's word gives the
// item's progress: 1 + the last stage with keys seen, set after the item's sums are in place; 0
// before the item begins and after the item ends. A separate warp reads and writes the words,
// because the producer's waits hold up all other warps.
namespace braid::cuda {

template <class Traits>
class ChainKeeper {
 public:
  __device__ ChainKeeper(const HopperParams& p, HopperSmem<Traits>& smem)
      : p_(p), smem_(smem), lane_(threadIdx.x % 32) {}

  // For each item: waits for the item's sums, then tells of the previous item's left sums.
  __device__ void run() {
    Ring<HopperSmem<Traits>::kWorkSlots> work, before;
    int leave = -1;
    uint32_t now = 0;
    while (true) {
      ptx::mbarrier_wait(&smem_.work_full[work.slot], work.parity);
      // The releasing lane reads for all lanes.
      const auto& slot = smem_.work[work.slot];
      const auto of_slot = [&](const int& x) {
        return __shfl_sync(0xffffffff, lane_ == 0 ? x : 0, 0);
      };
      const bool ends = of_slot(slot.num_tiles) < 0;
      const int resume = of_slot(slot.resume);
      const int next_leave = of_slot(slot.leave);
      const auto next_now = static_cast<uint32_t>(of_slot(slot.now));
      if (resume >= 0) {
        await(resume, static_cast<uint32_t>(of_slot(slot.before)), next_leave >= 0);
      }
      __syncwarp();
      if (lane_ == 0) {
        ptx::mbarrier_arrive(&smem_.sums_full[work.slot]);
        ptx::mbarrier_arrive(&smem_.work_empty[work.slot]);
      }
      if (leave >= 0) {
        ptx::mbarrier_wait(&smem_.work_empty[before.slot], before.parity);
        if (lane_ == 0) ptx::store_release(p_.link.words + leave, now);
        __syncwarp();
      }
      if (ends) return;
      leave = next_leave;
      now = next_now;
      before = work;
      work.next();
    }
  }

 private:
  // Far beyond any launch: taking up sums that no launch left is a caller's mistake.
  static constexpr uint64_t kDeadlineNs = 10'000'000'000;

  // Until the launches before have left the item; their CTAs are all running. Then its sums are on
  // their way to L2.
  __device__ void await(int place, uint32_t before, bool leaves) const {
    uint32_t* word = p_.link.words + place;
    const uint64_t start = ptx::global_nanoseconds();
    while (__reduce_max_sync(0xffffffff, ptx::load_acquire(word)) != before) {
      __nanosleep(100);
      if (ptx::global_nanoseconds() - start > kDeadlineNs) __trap();
    }
    if (!leaves && lane_ == 0) *word = 0;
    prefetch_sums<Traits>(p_, place, lane_);
  }

  const HopperParams& p_;
  HopperSmem<Traits>& smem_;
  const int lane_;
};

}  // namespace braid::cuda
