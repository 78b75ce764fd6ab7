#pragma once

#include <cstdint>

#include "braid/kernels/cuda/sampling/device/scores.cuh"
#include "braid/kernels/cuda/sampling/device/team.cuh"

// A selection's questions, answers and state in shared memory.
namespace braid::cuda::sampling {

constexpr int kListSize = 2048;

struct Decision {
  uint32_t bin;
  uint32_t bin_count;
  uint32_t above_count;   // elements of the bins before
  uint64_t above_weight;  // and their weight
  uint64_t bin_weight;
  uint64_t want;  // for an equal class: index of the element, from 1
};

struct Found {
  uint64_t weight;  // of all elements through this element
  uint64_t key;
};

struct alignas(16) SelectShared {
  uint32_t count[kBins];
  uint32_t low[kBins];  // weight of a bin: low and high half
  uint32_t high[kBins];
  uint64_t list[kListSize];
  uint64_t scratch[kWarps];
  uint64_t warp_weight[kWarps];
  uint64_t boundary;
  Decision decision;
  Found found;
  uint32_t list_size;
  int32_t chosen;
};

enum class By { count, weight };

// Asks for the first element, in key order, at which the count or weight reaches `want` (the first
// CTA's `want` counts; 1 to the total, and after a first question at most the first answer).
// Without `need_key` only the weight up to the element is sure.
struct Query {
  By by;
  uint64_t want;
  bool need_key;
};

}  // namespace braid::cuda::sampling
