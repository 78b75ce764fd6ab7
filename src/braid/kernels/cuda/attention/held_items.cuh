#pragma once

#include "braid/kernels/cuda/attention/hopper_launch.h"
#include "braid/kernels/cuda/attention/hopper_smem.cuh"
#include "braid/kernels/cuda/attention/softmax.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/ptx/cluster.h"
#include "braid/kernels/cuda/ptx/system.h"

// Calls whose keys arrive while they run (AttentionArrivals): what a CTA works on next. An item
// whose next keys are not there is left, with its sums, and taken up again. How many stages it is
// taken through at a time changes no bit: tiles of keys end with their stage, and sums stay as they
// are in registers.
namespace braid::cuda {

constexpr uint32_t kArrivalTimeoutMs = 5'000;

// How many of the first stages are there. All lanes ask, and nothing here is a loop: what one lane
// does alone, or as often as it takes, keeps the walk around it out of uniform registers.
class ArrivedStages {
 public:
  __device__ explicit ArrivedStages(const HopperParams& p) : p_(p) {}

  // Once a stage is seen here its keys may be copied.
  __device__ void look() {
    if (there_ == p_.last_stage) return;
    take(__reduce_max_sync(0xffffffff, static_cast<int>(ptx::load_acquire_system(p_.arrived))));
  }
  // What another CTA has seen.
  __device__ void take(int there) {
    there_ = there;
    ptx::fence_proxy_async_global();
  }
  __device__ int there() const { return there_; }
  __device__ bool has(int stage) const { return there_ >= stage; }

  // By one thread, when no CTA looks any more.
  __device__ void reset() {
    const uint64_t start = ptx::global_nanoseconds();
    while (static_cast<int>(ptx::load_acquire_system(p_.arrived)) < p_.last_stage &&
           ptx::global_nanoseconds() - start < kArrivalTimeoutMs * uint64_t{1'000'000}) {
      __nanosleep(200);
    }
    p_.arrived[0] = 0;
  }

  // Between two looks that found nothing new. Waits end after 5 s and are counted: the results are
  // wrong then.
  __device__ void pause() {
    __nanosleep(200);
    const auto ms = static_cast<uint32_t>(ptx::global_nanoseconds() / 1'000'000);
    const uint32_t now = __reduce_min_sync(0xffffffff, ms);
    if (waits_after_ != there_) {
      waits_after_ = there_;
      since_ = now;
    }
    if (now - since_ < kArrivalTimeoutMs) return;
    if (ptx::elect_one()) atomicAdd(p_.arrived + 1, 1);
    there_ = p_.last_stage;
  }

 private:
  const HopperParams& p_;
  int there_ = 0;
  int waits_after_ = -1;
  uint32_t since_ = 0;
};

// The items that a CTA has begun and left, each in a place, and those that nobody has begun.
template <class Traits>
class HeldItems {
 public:
  __device__ HeldItems(const HopperParams& p, HopperSmem<Traits>& smem, int lane, int rank)
      : p_(p),
        smem_(smem),
        lane_(lane),
        rank_(rank),
        stages_(p),
        new_(blockIdx.x / Traits::kCluster) {}

  __device__ bool any() const { return held_ != 0 || new_ < p_.plan.num_items; }
  __device__ bool picked() const { return choice_ != 0; }
  __device__ bool arrived(int stage) const { return stages_.has(stage); }

  // What can be finished comes first, then what nobody has begun, then what can go on a stage. The
  // CTAs of a cluster pick the same: the first tells the other what it has seen (`tells`: also if
  // that is nothing to do).
  __device__ void pick(bool tells) {
    if (Traits::kCluster > 1 && rank_ > 0) {
      stages_.take(hear());
    } else {
      stages_.look();
    }
    const bool holds = held_ >> lane_ & 1;
    const HeldItem& mine = smem_.held[lane_];
    const uint32_t ends = __ballot_sync(0xffffffff, holds && stages_.has(mine.last_stage));
    const uint32_t moves = __ballot_sync(0xffffffff, holds && stages_.has(mine.stage));
    const uint32_t places = 0xffffffffu >> (kMaxHeld - p_.places);
    picks_new_ = new_ < p_.plan.num_items && ends == 0 && held_ != places;
    choice_ = picks_new_ ? ~held_ : ends != 0 ? ends : moves;
    if (Traits::kCluster > 1 && rank_ == 0 && (tells || choice_ != 0)) tell(stages_.there());
  }

  __device__ void reset() { stages_.reset(); }

  // Nothing was picked.
  __device__ void pause() {
    if (rank_ == 0) stages_.pause();
  }

  // The item that was picked, and its place. A new one asks for the one after it.
  __device__ int place() const { return __ffs(static_cast<int>(choice_)) - 1; }
  __device__ bool is_new() const { return picks_new_; }
  __device__ HeldItem take() {
    if (!picks_new_) {
      HeldItem item = smem_.held[place()];
      __syncwarp();  // `put` writes there
      item.index = uniform(item.index);
      item.run = uniform(item.run);
      item.begun = uniform(item.begun);
      return item;
    }
    if (Traits::kCluster == 1 && lane_ == 0) claimed_ = atomicAdd(&p_.counters[0], 1) + gridDim.x;
    return {new_, 0, 0, 0, false};
  }

  // The item that was taken is left as `item` says, or done with.
  __device__ void put(bool leaves, const HeldItem& item) {
    held_ = (held_ & ~(1u << place())) | uint32_t{leaves} << place();
    if (leaves && lane_ == 0) smem_.held[place()] = item;
    __syncwarp();
  }

  // Before the next pick, and long after `take`: the claim is there.
  __device__ void end_visit() {
    if (!picks_new_) return;
    if constexpr (Traits::kCluster > 1) {
      new_ += gridDim.x / Traits::kCluster;
    } else {
      new_ = uniform(lane_ == 0 ? claimed_ : 0);
    }
  }

 private:
  // Told to the compiler, which else parts the lanes at each branch.
  __device__ static int uniform(int x) { return __reduce_or_sync(0xffffffff, x); }

  __device__ void tell(int there) {
    ptx::mbarrier_wait(&smem_.told_empty[told_.slot], told_.parity ^ 1);
    if (lane_ == 0) {
      ptx::store_async_cluster(&smem_.told[told_.slot], there, &smem_.told_full[told_.slot], 1);
    }
    __syncwarp();
    told_.next();
  }
  __device__ int hear() {
    uint64_t* full = &smem_.told_full[told_.slot];
    if (lane_ == 0) ptx::mbarrier_arrive_expect(full, sizeof(int));
    __syncwarp();
    ptx::mbarrier_wait(full, told_.parity);
    const int there = smem_.told[told_.slot];
    __syncwarp();
    if (lane_ == 0) ptx::mbarrier_arrive_cluster(&smem_.told_empty[told_.slot], 0);
    __syncwarp();
    told_.next();
    return uniform(there);
  }

  const HopperParams& p_;
  HopperSmem<Traits>& smem_;
  const int lane_;
  const int rank_;
  ArrivedStages stages_;
  int new_;          // the next item that nobody has begun
  int claimed_ = 0;  // lane 0's: the one after it
  uint32_t held_ = 0;
  uint32_t choice_ = 0;  // places, of which the first counts
  bool picks_new_ = false;
  Ring<2> told_;
};

// Where a consumer warpgroup leaves its sums of an item: each thread its own registers.
template <class Traits>
__device__ inline float4* sums_of(const HopperParams& p, int place, int wg) {
  return p.sums + ((int64_t{blockIdx.x} * p.places + place) * Traits::kConsumers + wg) *
                      (Traits::kSumUnits * 128);
}

template <class Traits>
__device__ __forceinline__ void put_down(const HopperParams& p, int place, int wg,
                                         const float (&o)[Traits::kOutN / 2],
                                         const RowStats& stats) {
  float4* to = sums_of<Traits>(p, place, wg) + threadIdx.x % 128;
#pragma unroll
  for (int i = 0; i < Traits::kOutN / 8; ++i) {
    __stcg(to + 128 * i, make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]));
  }
  __stcg(to + 128 * (Traits::kOutN / 8),
         make_float4(stats.max[0], stats.max[1], stats.sum[0], stats.sum[1]));
}

template <class Traits>
__device__ __forceinline__ void take_up(const HopperParams& p, int place, int wg,
                                        float (&o)[Traits::kOutN / 2], RowStats& stats) {
  const float4* from = sums_of<Traits>(p, place, wg) + threadIdx.x % 128;
#pragma unroll
  for (int i = 0; i < Traits::kOutN / 8; ++i) {
    const float4 x = __ldcg(from + 128 * i);
    o[4 * i] = x.x;
    o[4 * i + 1] = x.y;
    o[4 * i + 2] = x.z;
    o[4 * i + 3] = x.w;
  }
  const float4 x = __ldcg(from + 128 * (Traits::kOutN / 8));
  stats.max[0] = x.x;
  stats.max[1] = x.y;
  stats.sum[0] = x.z;
  stats.sum[1] = x.w;
}

}  // namespace braid::cuda
