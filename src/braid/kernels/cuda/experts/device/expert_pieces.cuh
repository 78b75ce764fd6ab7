#pragma once

#include "braid/kernels/cuda/experts/device/expert_product.h"
#include "braid/ops/route.h"

namespace braid::cuda {

// Pieces of work, blocks of rows or units as a kernel counts: expert e has the pieces before[e] to
// before[e + 1]. In shared memory; a whole CTA makes the table.
struct ExpertPieces {
  int before[ops::kMaxExperts + 1];
  int parts[32];

  // pieces_of(rows): the pieces of an expert with as many rows.
  template <class PiecesOf>
  __device__ void make(const ExpertProduct& p, const PiecesOf& pieces_of) {
    const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
    const int lane = thread & 31, warp = thread / 32, E = p.experts;
    const int live = p.begin ? 0 : live_rows(p);
    // A thread counts for neighbouring experts, then sums run over the CTA.
    const int each = (E + threads - 1) / threads;
    int own = 0;
    for (int e = thread * each; e < min(E, (thread + 1) * each); ++e) {
      own += pieces_of(rows_of(p, e, live));
    }
    int sum = own;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += other;
    }
    if (lane == 31) parts[warp] = sum;
    __syncthreads();
    int at = sum - own;
    for (int w = 0; w < warp; ++w) at += parts[w];
    for (int e = thread * each; e < min(E, (thread + 1) * each); ++e) {
      before[e] = at;
      at += pieces_of(rows_of(p, e, live));
    }
    if (thread == threads - 1) before[E] = at;
    __syncthreads();
  }

  // The expert of unit u, where each piece is `each` units.
  __device__ int expert_of(int u, int E, int each = 1) const {
    int low = 0, high = E;  // before[low] * each <= u < before[high] * each
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (before[middle] * each <= u) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }

  __device__ static int live_rows(const ExpertProduct& p) {
    return static_cast<int>(p.live ? __ldcg(reinterpret_cast<const long long*>(p.live))
                                   : p.rows_of_one);
  }
  __device__ static int rows_of(const ExpertProduct& p, int e, int live) {
    return p.begin ? __ldcg(p.begin + e + 1) - __ldcg(p.begin + e) : live;
  }
};

}  // namespace braid::cuda
