#pragma once

#include "braid/kernels/cuda/comm/device/wait.cuh"
#include "braid/kernels/cuda/ptx/system.h"
#include "braid/kernels/cuda/relay/device/worker.cuh"

// sum = sum_p y_p: each rank p sends a linear's results as words to all ranks, and every reader
// adds up the ranks' words in rank order.
namespace braid::cuda {

class RelaySums {
 public:
  __device__ explicit RelaySums(const RelayArgs& a) : a_(a), bank_(__ldcg(a.control + 2)) {}

  __device__ void send(int pair, uint32_t word, uint32_t tag) const {
#pragma unroll 1
    for (int q = 0; q < a_.ranks.ranks; ++q) {
      ptx::store_relaxed_system(words(q, a_.ranks.rank) + pair, make_uint2(word, tag));
    }
  }

  // Adds the sum's words at place_of(j), by fours, to s. After a missed deadline the sums are
  // wrong, the launch still ends, and the fabric reports the error.
  template <int kReads, class PlaceOf>
  __device__ void add_to(float4 (&s)[kReads], uint32_t tag, const PlaceOf& place_of) {
    constexpr int kAtOnce = kReads > 4 ? 1 : 2;  // ranks
    const int ranks = a_.ranks.ranks;
#pragma unroll 1
    for (int r = 0; r < ranks; r += kAtOnce) {
      const auto rank_of = [&](int i) { return min(r + i, ranks - 1); };
      uint4 v[kAtOnce][kReads];
      uint64_t start = 0;
      for (uint32_t looks = 1;; ++looks) {
        int missing = -1;
        uint32_t seen = tag;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const auto* from = reinterpret_cast<const uint4*>(words(a_.ranks.rank, rank_of(i)));
#pragma unroll
          for (int j = 0; j < kReads; ++j) v[i][j] = ptx::load_relaxed_system(from + place_of(j));
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
          for (int j = 0; j < kReads; ++j) {
            if (v[i][j].y != tag) missing = rank_of(i), seen = v[i][j].y;
            if (v[i][j].w != tag) missing = rank_of(i), seen = v[i][j].w;
          }
        }
        if (missing < 0) break;
        if (looks % kFreeLooks == 0 && give_up(a_.ranks, missing, tag, seen, start)) break;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (r + i >= ranks) break;
#pragma unroll
        for (int j = 0; j < kReads; ++j) add_words(s[j], v[i][j]);
      }
    }
    bank_ ^= 1;
  }

  // Bank at the begin of the next launch.
  __device__ uint32_t bank() const {
    return bank_;
  }

 private:
  // At rank `at`, from `from`.
  __device__ uint2* words(int at, int from) const {
    return a_.sums[at] + (bank_ * a_.ranks.ranks + from) * a_.sum_pairs;
  }

  const RelayArgs& a_;
  uint32_t bank_;
};

}  // namespace braid::cuda
