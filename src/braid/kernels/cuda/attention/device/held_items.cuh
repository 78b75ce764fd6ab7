#pragma once

#include "braid/kernels/cuda/attention/device/hopper_launch.h"
#include "braid/kernels/cuda/attention/device/hopper_smem.cuh"
#include "braid/kernels/cuda/attention/device/softmax.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/ptx/cluster.h"
#include "braid/kernels/cuda/ptx/system.h"
#include "braid/kernels/cuda/ptx/tma.h"

// Order of a CTA's items in calls with arriving keys (AttentionArrivals). A CTA leaves an item
// without present keys, with the item's sums, and takes the item up again later. The number of
// stages per turn changes no bit: tiles of keys end with their stage, and sums stay as in
// registers.
namespace braid::cuda {

// Number of stages present so far. All lanes ask, and the code has no loop: work by a single lane,
// or a loop, would keep the surrounding walk out of uniform registers.
class ArrivedStages {
 public:
  __device__ explicit ArrivedStages(const HopperParams& p) : p_(p) {}

  // After a stage is seen here, the stage's keys may be copied.
  __device__ void look() {
    if (there_ == p_.last_stage) return;
    take(__reduce_max_sync(0xffffffff, static_cast<int>(ptx::load_acquire_system(p_.arrived))));
  }
  // Takes over the number that another CTA has seen.
  __device__ void take(int there) {
    there_ = there;
    ptx::fence_proxy_async_global();
  }
  __device__ int there() const { return there_; }
  __device__ bool has(int stage) const { return there_ >= stage; }

  // Called by a single thread after all CTAs have stopped looking.
  __device__ void reset() {
    const uint64_t start = ptx::global_nanoseconds();
    while (static_cast<int>(ptx::load_acquire_system(p_.arrived)) < p_.last_stage &&
           ptx::global_nanoseconds() - start < p_.timeout_ms * uint64_t{1'000'000}) {
      __nanosleep(200);
    }
    p_.arrived[0] = 0;
  }

  // Pauses between two looks without news. Waits past the deadline are counted, and the results are
  // then wrong; waiting time is counted for `ctas` CTAs.
  __device__ void pause(int ctas) {
    __nanosleep(200);
    const auto us = static_cast<uint32_t>(ptx::global_nanoseconds() / 1'000);
    const uint32_t now = __reduce_min_sync(0xffffffff, us);
    if (paused_at_ != 0 && ptx::elect_one()) atomicAdd(p_.arrived + 2, ctas * (now - paused_at_));
    paused_at_ = now;
    if (waits_after_ != there_) {
      waits_after_ = there_;
      since_ = now;
    }
    if (now - since_ < p_.timeout_ms * 1000) return;
    if (ptx::elect_one()) atomicAdd(p_.arrived + 1, 1);
    there_ = p_.last_stage;
  }
  // There was something to do.
  __device__ void go_on() { paused_at_ = 0; }

 private:
  const HopperParams& p_;
  int there_ = 0;
  int waits_after_ = -1;
  uint32_t since_ = 0;      // microseconds
  uint32_t paused_at_ = 0;  // likewise; 0: not pausing
};

// Called by each warp after writing an item's rows: the last warp signals all early rows.
__device__ __forceinline__ void tell_early(const HopperParams& p, int segment, int lane) {
  if (p.early_warps == 0 || p.plan.q[segment].early == 0) return;
  __threadfence_system();
  __syncwarp();
  uint32_t before = 0;
  if (lane == 0) before = atomicAdd(&p.early->count, 1u);
  before = __shfl_sync(0xffffffff, before, 0);
  if (before + 1 < p.early_warps) return;
  __threadfence_system();
  __syncwarp();
  if (lane == 0) p.early->count = 0;
  if (lane < static_cast<int>(p.early->num_words)) {
    ptx::store_release_system(p.early->words[lane], 1u);
  }
  __syncwarp();
}

// A CTA's left items, in a ring by order of leaving, and the items that no CTA has begun. An item
// left earlier mostly waits for no later stage than its successors, so a CTA looks at the first of
// a ring alone. Early items have a ring and a count for themselves: lane 1 keeps early items'
// books, lane 0 all others'.
template <class Traits>
class HeldItems {
 public:
  __device__ HeldItems(const HopperParams& p, HopperSmem<Traits>& smem, int lane, int rank)
      : p_(p),
        smem_(smem),
        lane_(lane),
        rank_(rank),
        stages_(p),
        held_(p.held + int64_t{blockIdx.x} * p.places),
        next_(first_item() + turn_of(first_item())) {}

  __device__ bool any() const {
    return __any_sync(0xffffffff, count_ != 0 || next_ < end_of_items());
  }
  __device__ bool picked() const { return picked_; }
  __device__ bool arrived(int stage) const { return stages_.has(stage); }

  // Picks the next item: early items ready to finish or to begin, then other items ready to finish,
  // then other new items; then items with a next stage present, early items first. CTAs of a
  // cluster pick alike: the first CTA tells the second the number of stages it has seen (`tells`:
  // even without an item to pick).
  __device__ void pick(bool tells) {
    if (Traits::kCluster > 1 && rank_ > 0) {
      stages_.take(hear());
    } else {
      stages_.look();
    }
    const AttentionPlan& plan = p_.plan;
    const auto run_ends = [&] {
      return run_ + 1 < plan.num_runs && next_ >= plan.item_begin[run_ + 1];
    };
    while (__any_sync(0xffffffff, run_ends())) run_ += static_cast<int>(run_ends());
    const HeldItem& oldest = held_[ring_begin() + first_];
    const uint32_t ends = ballot(count_ != 0 && stages_.has(oldest.last_stage));
    const uint32_t moves = ballot(count_ != 0 && stages_.has(oldest.stage));
    const uint32_t begins = ballot(next_ < end_of_items() && count_ < ring_size() &&
                                   stages_.has(plan.q[plan.run_begin[run_]].stage));
    const uint32_t now = ends | begins;
    const uint32_t from = now != 0 ? now : moves;
    picked_ = from != 0;
    who_ = static_cast<int>(from >> 1);
    picks_new_ = (((begins & ~ends) >> who_) & 1) != 0;
    if (Traits::kCluster > 1 && rank_ == 0 && (tells || picked())) tell(stages_.there());
  }

  __device__ void reset() { stages_.reset(); }

  // Nothing was picked.
  __device__ void pause() {
    if (rank_ == 0) stages_.pause(Traits::kCluster);
  }

  // Takes the picked item; the sums of a left item are at `place`. A new item requests its
  // successor's number long before the next pick.
  __device__ bool is_new() const { return picks_new_; }
  __device__ HeldItem take(int& place) {
    stages_.go_on();
    place = of_who(ring_begin() + first_);
    if (!picks_new_) {
      HeldItem item = held_[place];
      __syncwarp();  // `put` may write there
      if (lane_ == who_) {
        first_ = first_ + 1 < ring_size() ? first_ + 1 : 0;
        --count_;
      }
      item.index = uniform(item.index);
      item.run = uniform(item.run);
      item.begun = uniform(item.begun);
      return item;
    }
    const int index = of_who(next_);
    if (lane_ == who_) {
      const int ctas = static_cast<int>(gridDim.x);
      next_ = Traits::kCluster == 1 ? first_item() + ctas + atomicAdd(&p_.counters[2 * lane_], 1)
                                    : next_ + ctas / Traits::kCluster;
    }
    return {index, 0, 0, 0, 0};
  }

  // Leaves an item in the state `item`. Returns the place for the item's sums.
  __device__ int put(const HeldItem& item) {
    int at = first_ + count_;
    if (at >= ring_size()) at -= ring_size();
    const int place = of_who(ring_begin() + at);
    if (lane_ == who_) {
      held_[place] = item;
      ++count_;
    }
    __syncwarp();
    return place;
  }

 private:
  // First item of this lane's kind.
  __device__ int first_item() const { return lane_ == 1 ? p_.early_begin : 0; }
  // Clusters take items in turns; early items continue after all others, so all clusters get equal
  // numbers.
  __device__ static int turn_of(int item) {
    const int clusters = static_cast<int>(gridDim.x) / Traits::kCluster;
    const int ahead = static_cast<int>(blockIdx.x) / Traits::kCluster - item % clusters;
    return ahead < 0 ? ahead + clusters : ahead;
  }
  __device__ int end_of_items() const {
    return lane_ == 0 ? p_.early_begin : lane_ == 1 ? p_.plan.num_items : 0;
  }
  __device__ int ring_begin() const { return lane_ == 1 ? p_.places - p_.early_places : 0; }
  __device__ int ring_size() const {
    return lane_ == 1 ? p_.early_places : p_.places - p_.early_places;
  }
  __device__ static uint32_t ballot(bool x) { return __ballot_sync(0xffffffff, x); }
  // Tells the compiler that x is uniform; otherwise lanes part at each branch.
  __device__ static int uniform(int x) { return __reduce_or_sync(0xffffffff, x); }
  __device__ int of_who(int x) const { return uniform(lane_ == who_ ? x : 0); }

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
  HeldItem* const held_;  // [places] of this CTA
  // By lanes 0 and 1.
  int first_ = 0;  // of the ring, the oldest
  int count_ = 0;  // items in the ring
  int next_;       // next new item
  int run_ = 0;    // the new item's run of queries
  // The picked item: by lane, and new or left.
  int who_ = 0;
  bool picked_ = false;
  bool picks_new_ = false;
  Ring<2> told_;
};

// Memory for a consumer warpgroup's sums of an item, each thread's own registers.
template <class Traits>
__device__ inline float4* sums_of(const HopperParams& p, int place, int wg) {
  const int64_t first = int64_t{blockIdx.x} * p.places;
  return p.sums + ((first + place) * Traits::kConsumers + wg) * (Traits::kSumUnits * 128);
}

// Called by a warp: brings an item's left sums to L2 during the end of the item before.
template <class Traits>
__device__ __forceinline__ void prefetch_sums(const HopperParams& p, int place, int lane) {
  if (lane >= Traits::kConsumers) return;
  ptx::prefetch_l2_bulk(sums_of<Traits>(p, place, lane), Traits::kSumUnits * 128 * 16);
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
