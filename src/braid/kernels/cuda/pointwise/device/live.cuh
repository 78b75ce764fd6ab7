#pragma once

#include <cstdint>

#include "braid/kernels/cuda/ptx/load.h"
#include "braid/kernels/cuda/ptx/prefetch.h"

namespace braid::cuda {

// The number of live rows, in device memory. With few rows, rows are read and computed before the
// number is known: a single memory latency covers both, and only stores wait. With many rows, dead
// rows end at once.
struct LiveRows {
  const int64_t* rows;  // null: all
  int64_t capacity;

  // Few enough rows for a further latency to show.
  __device__ bool few() const { return capacity <= 64; }
  // Whether to leave before anything else is read. Few rows do not wait for the answer.
  __device__ bool dead_early(int64_t row) const {
    return !few() && rows && row >= ptx::load_in_place(rows);
  }
  __device__ int64_t count() const { return rows ? *rows : capacity; }
  // A single CTA for all: with many rows, every warp asking L2 for the line would delay the launch.
  __device__ void prefetch() const {
    if (rows && blockIdx.x == 0) ptx::prefetch_l2(rows);
  }
};

}  // namespace braid::cuda
