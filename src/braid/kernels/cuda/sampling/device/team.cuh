#pragma once

#include <cstdint>

#include "braid/kernels/cuda/ptx/cluster.h"
#include "braid/kernels/cuda/ptx/cluster_pointer.h"
#include "braid/kernels/cuda/sampling/config.h"

// The CTAs of a row: a cluster, or a single CTA without clusters.
namespace braid::cuda::sampling {

constexpr int kWarps = kSampleThreads / 32;

constexpr int kMaxTeam = 16;

// Messages between CTAs; two sets in turns, as a slow thread may still read the last.
struct ReduceShared {
  uint64_t warp[kWarps];
  uint64_t inbox[2][kMaxTeam];
  uint64_t flags[2][kMaxTeam];
  uint64_t arrived[2];  // mbarriers
};

struct Max {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a > b ? a : b; }
};
struct Sum {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a + b; }
};

// Over groups of kWidth lanes; the result in all lanes.
template <int kWidth = 32, class F>
__device__ inline uint64_t warp_reduce(uint64_t x, F f) {
#pragma unroll
  for (int d = kWidth / 2; d > 0; d /= 2) x = f(x, __shfl_xor_sync(~0u, x, d));
  return x;
}

template <class T>
__device__ inline T warp_prefix(T x) {  // inclusive
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const T y = __shfl_up_sync(~0u, x, d);
    if (lane >= d) x += y;
  }
  return x;
}

// Sum of the first n <= 32 `values`, in all lanes.
__device__ inline uint64_t sum_before(const uint64_t* values, int n) {
  const int lane = threadIdx.x % 32;
  return warp_reduce(lane < n ? values[lane] : 0, Sum{});
}

// Inclusive, over the CTA.
template <class T>
__device__ inline T block_prefix(T x, uint64_t* scratch) {  // scratch [kWarps]
  const int warp = threadIdx.x / 32;
  x = warp_prefix(x);
  __syncthreads();
  if (threadIdx.x % 32 == 31) scratch[warp] = x;
  __syncthreads();
  return x + static_cast<T>(sum_before(scratch, warp));
}

// All threads of all CTAs call each member.
template <bool kCluster>
class Team {
 public:
  __device__ explicit Team(ReduceShared& shared) : shared_(shared) {
    if constexpr (kCluster) {
      rank_ = static_cast<int>(ptx::cluster_rank());
      size_ = static_cast<int>(ptx::cluster_size());
      if (threadIdx.x == 0) {
        ptx::mbarrier_init(&shared_.arrived[0], 1);
        ptx::mbarrier_init(&shared_.arrived[1], 1);
        ptx::fence_barrier_init();
      }
      ptx::cluster_arrive_relaxed();  // the wait for the others is in `join`
    }
  }
  __device__ int rank() const { return rank_; }
  __device__ int size() const { return size_; }

  __device__ void sync() {
    if constexpr (kCluster) {
      join();
      ptx::cluster_sync();
    } else {
      __syncthreads();
    }
  }

  // The same place in the shared memory of CTA `rank`.
  template <class T>
  __device__ T* at(T* p, int rank) const {
    if constexpr (kCluster) {
      return ptx::cluster_pointer(p, static_cast<uint32_t>(rank));
    } else {
      return p;
    }
  }

  // Over all threads of all CTAs, the result in all; `flag` becomes whether any thread's is set.
  // Integers: any order gives the same bits. A CTA may end after it.
  template <class F>
  __device__ uint64_t reduce(uint64_t x, F f, bool& flag) {
    x = warp_reduce(x, f);
    flag = __syncthreads_or(flag);
    if (threadIdx.x % 32 == 0) shared_.warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = warp_reduce<kWarps>(shared_.warp[threadIdx.x % kWarps], f);
    if constexpr (kCluster) {
      join();
      const int turn = uses_ % 2;
      const uint32_t parity = uses_ / 2 % 2;
      ++uses_;
      uint64_t* arrived = &shared_.arrived[turn];
      if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect(arrived, static_cast<uint32_t>(size_) * 16);
      }
      if (static_cast<int>(threadIdx.x) < size_) {
        ptx::store_async_cluster(&shared_.inbox[turn][rank_], x, arrived, threadIdx.x);
        ptx::store_async_cluster(&shared_.flags[turn][rank_], flag, arrived, threadIdx.x);
      }
      ptx::mbarrier_wait(arrived, parity);
      const int other = static_cast<int>(threadIdx.x % kMaxTeam);
      x = warp_reduce<kMaxTeam>(other < size_ ? shared_.inbox[turn][other] : 0, f);
      flag = __any_sync(~0u, other < size_ && shared_.flags[turn][other] != 0);
    }
    return x;
  }
  template <class F>
  __device__ uint64_t reduce(uint64_t x, F f) {
    bool flag = false;
    return reduce(x, f, flag);
  }
  // Sum over the CTAs before this CTA, from the last `reduce`.
  __device__ uint64_t before() const {
    return kCluster ? sum_before(shared_.inbox[(uses_ - 1) % 2], rank_) : 0;
  }

 private:
  __device__ void join() {
    if (!joined_) ptx::cluster_wait();
    joined_ = true;
  }

  ReduceShared& shared_;
  int rank_ = 0;
  int size_ = 1;
  int uses_ = 0;
  bool joined_ = false;
};

}  // namespace braid::cuda::sampling
