#pragma once

#include <cuda_bf16.h>

#include "braid/kernels/cuda/ptx/barrier.h"
#include "braid/kernels/cuda/ptx/gpu.h"
#include "braid/kernels/cuda/ptx/mma.h"
#include "braid/kernels/cuda/relay/device/relay_args.h"
#include "braid/kernels/cuda/relay/relay_layout.h"

// State shared by a CTA's warps: slots, words from other CTAs, the number of copies under way.
namespace braid::cuda {

constexpr int kRelayThreads = 32 * kRelayWarps;  // multiplying threads

// Sums of bf16 products by a warp, eight elements per lane at a time. Four lanes' w form a row or
// two of a, and four lanes' x a column of b: wanted products lie on the diagonal.
class RelayDot {
 public:
  // x is in the order of relay_x_word.
  __device__ void add(int i, const uint4& w, const uint4& x) {
    const uint32_t a[4] = {w.x, w.y, w.z, w.w};
    ptx::mma_16816<__nv_bfloat16>(d_[i % kChains][0], a, x.x, x.y);  // row g: words 0 and 2
    ptx::mma_16816<__nv_bfloat16>(d_[i % kChains][1], a, x.z, x.w);  // row g + 8: words 1 and 3
  }
  // This lane's share: the shares of all lanes add up to the sum.
  __device__ float share() const {
    const int lane = threadIdx.x % 32, row = lane / 4;
    float even = 0, odd = 0;
#pragma unroll
    for (int i = 0; i < kChains; ++i) {
      even += d_[i][0][0] + d_[i][1][2];
      odd += d_[i][0][1] + d_[i][1][3];
    }
    return lane % 4 != row / 2 ? 0 : row % 2 == 0 ? even : odd;
  }

 private:
  static constexpr int kChains = 2;  // independent sums
  float d_[kChains][2][4] = {};
};

// Place of pair i in x.
__device__ inline int relay_x_word(int i) {
  return (i & ~3) | (i & 1) << 1 | (i >> 1 & 1);
}

__device__ inline void add_words(float4& s, const uint4& words) {
  s.x += ptx::low_half(words.x);
  s.y += ptx::high_half(words.x);
  s.z += ptx::low_half(words.z);
  s.w += ptx::high_half(words.z);
}

// Ends the launch where words do not come, because another CTA has failed: after some seconds, as a
// try takes half a microsecond at least.
__device__ inline void lose_patience(uint32_t& tries) {
  if (++tries > 1u << 23) __trap();
}

// Reads the words at place_of(j) after all tags have arrived.
template <int kReads, class PlaceOf>
__device__ __forceinline__ void wait_words(uint4 (&v)[kReads], uint32_t tag,
                                           const PlaceOf& place_of) {
  uint32_t tries = 0;
  bool all;
  do {
    all = true;
#pragma unroll
    for (int j = 0; j < kReads; ++j) v[j] = ptx::load_relaxed_gpu(place_of(j));
#pragma unroll
    for (int j = 0; j < kReads; ++j) all = all && v[j].y == tag && v[j].w == tag;
    lose_patience(tries);
  } while (!all);
}

// A launch's last CTA leaves `tag`, which no word has, in control [2]: true in that CTA's thread 0.
// All its threads have met before.
__device__ inline bool leave_tag(uint32_t* control, uint32_t tag) {
  if (threadIdx.x != 0) return false;
  __threadfence();
  if (atomicAdd(control + 1, 1) != gridDim.x - 1) return false;
  control[0] = tag;
  control[1] = 0;
  return true;
}

// A warp's place in the ring, whose slots go to the warps in turns from each step's first on.
class RelayRing {
 public:
  __device__ RelayRing(const RelayArgs& a, uint8_t* smem, const RelayLayout& layout)
      : ring_(smem + layout.ring),
        full_(reinterpret_cast<uint64_t*>(smem + layout.barriers)),
        empty_(full_ + a.slots),
        slots_(a.slots),
        warp_(threadIdx.x / 32) {}

  // Begins a step with `count` slots.
  __device__ void begin(int count) {
    slot_ = first_ + warp_;
    parity_ = first_parity_;
    wrap(slot_, parity_);
    for (first_ += count; first_ >= slots_;) wrap(first_, first_parity_);
  }
  // Waits for this warp's next slot and returns its data.
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
  int first_ = 0;  // in the next step
  uint32_t first_parity_ = 0;
  int slot_ = 0;
  uint32_t parity_ = 0;
};

// How many copies a producer may have on their way: fewer while words are, which pass through the
// same memory.
class RelayFlow {
 public:
  __device__ RelayFlow(const RelayArgs& a, uint8_t* smem, const RelayLayout& layout)
      : in_flight_(reinterpret_cast<volatile int*>(smem + layout.in_flight)),
        most_(min(a.sum_pairs > 0 ? kRelayInFlightOverRanks : kRelayInFlight,
                  relay_in_flight(a.slots))) {}
  __device__ int in_flight() const { return *in_flight_; }
  __device__ void stream() const { set(most_); }
  __device__ void make_way() const { set(kRelayInFlightBesideWords); }

 private:
  __device__ void set(int n) const {
    if (threadIdx.x == 0) *in_flight_ = n;
  }
  volatile int* const in_flight_;
  const int most_;
};

// A step's view of the launch.
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
