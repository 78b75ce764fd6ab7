#pragma once

#include <cuda_runtime.h>

#include <memory>

#include "braid/backend/backend.h"

namespace braid::cuda {

class CudaBackend;

// How launches learn, while they run, which of their phases may begin (Wait::phase): words of
// device memory for each, the last such phase, a count of its waits that ran out, and how long the
// newest step's took, in microseconds of all its CTAs together.
class StageWords {
 public:
  static constexpr int kRanOut = 1, kWaited = 2, kWords = 3;  // the first: the number of stages
  // With `by_stream` the streams write them themselves (stream_words.h), else kernels do.
  StageWords(CudaBackend& backend, int launches, bool by_stream);

  uint32_t* of(int launch) const {
    return reinterpret_cast<uint32_t*>(words_->data()) + kWords * launch;
  }
  // In streams, capturable: at a step's begin no stage is there (a call leaves zero, but a rank
  // without rows of the last stages hears of them after it); this one is, once all before it in the
  // stream is done; at the step's end the host is told of waits that ran out.
  void reset(cudaStream_t stream) const;
  void write(int launch, uint32_t stage, cudaStream_t stream) const;
  void fetch(cudaStream_t stream) const;
  // After a step: fails with kDeadline if a wait ran out.
  void check() const;

 private:
  const int launches_;
  const bool by_stream_;
  std::unique_ptr<DeviceMemory> words_;  // u32 [launches, kWords]
  std::unique_ptr<DeviceMemory> copy_;   // the same in pinned host memory
};

}  // namespace braid::cuda
