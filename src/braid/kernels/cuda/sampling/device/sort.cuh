#pragma once

#include <cstdint>

#include "braid/kernels/cuda/sampling/config.h"

namespace braid::cuda::sampling {

// Sorts list [n] of different keys, largest first; the list has room for the next power of two.
__device__ inline void sort_list(uint64_t* list, int n) {
  if (n <= kSampleThreads) {  // a key's place is the number of larger ones
    __syncthreads();
    const int i = threadIdx.x;
    const uint64_t key = i < n ? list[i] : 0;
    int place = 0;
    if (i / 32 * 32 < n) {
#pragma unroll 8
      for (int j = 0; j < n; ++j) place += list[j] > key;
    }
    __syncthreads();
    if (i < n) list[place] = key;
    __syncthreads();
    return;
  }
  int size = 2;
  while (size < n) size *= 2;
  for (int i = n + threadIdx.x; i < size; i += kSampleThreads) list[i] = 0;
#pragma unroll 1
  for (int k = 2; k <= size; k *= 2) {
#pragma unroll 1
    for (int j = k / 2; j > 0; j /= 2) {
      __syncthreads();
      for (int pair = threadIdx.x; pair < size / 2; pair += kSampleThreads) {
        const int i = 2 * pair - (pair & (j - 1));
        const uint64_t a = list[i];
        const uint64_t b = list[i + j];
        if ((a < b) == ((i & k) == 0)) {
          list[i] = b;
          list[i + j] = a;
        }
      }
    }
  }
  __syncthreads();
}

}  // namespace braid::cuda::sampling
