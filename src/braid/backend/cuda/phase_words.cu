#include "braid/backend/cuda/phase_words.h"

#include <cuda/atomic>

#include "braid/backend/cuda/cuda_backend.h"
#include "braid/backend/cuda/launch.h"
#include "braid/backend/cuda/memory.h"
#include "braid/backend/cuda/stream_words.h"
#include "braid/base/error.h"

namespace braid::cuda {
namespace {

constexpr int kWords = PhaseWords::kWords;

int64_t bytes_of_words(int launches) {
  return int64_t{launches} * kWords * static_cast<int64_t>(sizeof(uint32_t));
}

// Kernels, not copies: a copy in a stream may share a hardware queue with the copies that bring a
// phase's data, and delays these until its turn comes.
__global__ void reset_words(uint32_t* words, int launches) {
  for (int i = static_cast<int>(threadIdx.x); i < launches; i += static_cast<int>(blockDim.x)) {
    words[kWords * i] = words[kWords * i + PhaseWords::kWaited] = 0;
  }
}
__global__ void report_words(uint32_t* host, const uint32_t* words, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    host[i] = words[i];
  }
}

// A single thread: it finds room on an SM that a launch spares.
__global__ void write_word(uint32_t* word, uint32_t value) {
  ::cuda::atomic_ref<uint32_t, ::cuda::thread_scope_system>(*word).store(
      value, ::cuda::memory_order_release);
}

}  // namespace

PhaseWords::PhaseWords(CudaBackend& backend, int launches, bool by_stream)
    : launches_(launches),
      by_stream_(by_stream),
      words_(backend.allocate(bytes_of_words(launches))),
      copy_(std::make_unique<PinnedMemory>(bytes_of_words(launches))) {
  load_kernel(reset_words);
  load_kernel(report_words);
  load_kernel(write_word);
}

void PhaseWords::reset(cudaStream_t stream) const {
  launch_kernel({stream, false}, reset_words, dim3(1), dim3(32), 0, of(0), launches_);
}

void PhaseWords::write(int launch, uint32_t phase, cudaStream_t stream) const {
  if (by_stream_) {
    const StreamWord word{StreamWord::Does::write, of(launch), phase};
    return put_words(stream, {&word, 1});
  }
  launch_kernel({stream, false}, write_word, dim3(1), dim3(1), 0, of(launch), phase);
}

void PhaseWords::fetch(cudaStream_t stream) const {
  launch_kernel({stream, false}, report_words, dim3(1), dim3(32), 0,
                reinterpret_cast<uint32_t*>(copy_->data()), of(0), kWords * launches_);
}

void PhaseWords::check() const {
  const auto* words = reinterpret_cast<const uint32_t*>(copy_->data());
  for (int i = 0; i < launches_; ++i) {
    const uint32_t ran_out = words[kWords * i + kRanOut];
    if (ran_out == 0) continue;
    fail(ErrorCode::kDeadline, "data for a launch's later phases did not come: {} waits ran out",
         ran_out);
  }
}

}  // namespace braid::cuda
