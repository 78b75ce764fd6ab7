#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "braid/kernels/cuda/comm/collective.h"

// Inputs that change from replay to replay and checks of results, on the device: so that every
// replay of a graph is checked. Values are integers that bf16 holds exactly, and their sums.
namespace braid::cuda::test {

// Element i of rank's input in replay `step`: below 256 / ranks.
constexpr int value_at(int64_t i, int rank, int64_t step, int ranks) {
  return static_cast<int>((i * 7 + rank * 13 + step * 3 + i / 251) % (256 / ranks));
}

// ++*step, then x[i] = value_at(i, rank, *step, ranks), i < n; bf16 or f32.
void launch_fill(int64_t* step, void* x, bool bf16, int64_t n, int rank, int ranks,
                 cudaStream_t stream);

// Adds to *wrong how many elements of y are not what `op` on [rows, cols] gives.
void launch_check(CollectiveOp op, const int64_t* step, const void* y, bool bf16, int64_t rows,
                  int64_t cols, int rank, int ranks, unsigned long long* wrong,
                  cudaStream_t stream);

void load_graph_kernels();

}  // namespace braid::cuda::test
