#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "braid/kernels/cuda/sampling/device/sample.h"

namespace braid::cuda {

// Pinned host memory for the sampler's reports. The host reads a step or more behind, without
// waiting for the stream. A step's records stay until `ring` steps later.
class SampleRing {
 public:
  // Allocates [ring, capacity] records with room for `max_logprobs` alternatives each.
  SampleRing(int32_t ring, int32_t capacity, int32_t max_logprobs);

  void attach(SampleCall& call) const;  // sets records, tops, ring and max_logprobs

  // Whether the token of `row` in step `step` has arrived. Costs a single load.
  bool ready(uint64_t step, int32_t row) const;

  // Waits for the token; false after `timeout`.
  bool wait(uint64_t step, int32_t row, std::chrono::nanoseconds timeout) const;

  // Record of a ready row.
  const SampleRecord& record(uint64_t step, int32_t row) const;
  std::span<const SampleTop> tops(uint64_t step, int32_t row) const;

 private:
  struct Free {
    void operator()(void* p) const;
  };
  size_t index(uint64_t step, int32_t row) const;

  int32_t ring_;
  int32_t capacity_;
  int32_t max_logprobs_;
  std::unique_ptr<SampleRecord[], Free> records_;  // [ring, capacity]
  std::unique_ptr<SampleTop[], Free> tops_;        // [ring, capacity, max_logprobs]
};

}  // namespace braid::cuda
