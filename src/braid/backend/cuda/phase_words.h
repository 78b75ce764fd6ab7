#pragma once

#include <cuda_runtime.h>

#include <memory>

#include "braid/backend/backend.h"

namespace braid::cuda {

class CudaBackend;

// Words in device memory that tell running launches which of their phases may begin (Wait::phase).
// Each launch has the last such phase, a count of expired waits, and the waiting time in the newest
// step, in microseconds over all CTAs together.
class PhaseWords {
 public:
  static constexpr int kRanOut = 1, kWaited = 2, kWords = 3;
  // With `by_stream` the streams write them themselves (stream_words.h), else kernels do.
  PhaseWords(CudaBackend& backend, int launches, bool by_stream);

  uint32_t* of(int launch) const {
    return reinterpret_cast<uint32_t*>(words_->data()) + kWords * launch;
  }
  // In streams, capturable. `reset`: no phase may begin (at a step's begin: a rank without rows of
  // the last phases hears of them after its call). `write`: a phase may begin, after everything
  // ahead in the stream. `fetch`: tells the host of expired waits (at a step's end).
  void reset(cudaStream_t stream) const;
  void write(int launch, uint32_t phase, cudaStream_t stream) const;
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
