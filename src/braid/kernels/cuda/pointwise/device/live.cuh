#pragma once

#include <cstdint>

#include "braid/kernels/cuda/ptx/load.h"
#include "braid/kernels/cuda/ptx/prefetch.h"

namespace braid::cuda {

// How many rows are live, in device memory. Few rows are read and computed before it is known
// whether they are live, so that one memory latency covers both; only their stores wait for it.
// Of many rows the dead ones end at once.
struct LiveRows {
  const int64_t* rows;  // null: all
  int64_t capacity;

  // So few that one latency more would show.
  __device__ bool few() const { return capacity <= 64; }
  // Whether to leave before anything else is read. Few rows do not wait for the answer.
  __device__ bool dead_early(int64_t row) const {
    return !few() && rows && row >= ptx::load_in_place(rows);
  }
  __device__ int64_t count() const { return rows ? *rows : capacity; }
  // One CTA for all: a line that every warp of many rows asks L2 for is what the launch waits for.
  __device__ void prefetch() const {
    if (rows && blockIdx.x == 0) ptx::prefetch_l2(rows);
  }
};

}  // namespace braid::cuda
