#include "braid/backend/cuda/stage_words.h"

#include <cuda/atomic>

#include "braid/backend/cuda/cuda_backend.h"
#include "braid/backend/cuda/memory.h"
#include "braid/base/error.h"

namespace braid::cuda {
namespace {

constexpr size_t kWordBytes = sizeof(uint32_t), kLaunchBytes = 2 * kWordBytes;

// One thread: it finds room on an SM that a launch spares.
__global__ void write_word(uint32_t* word, uint32_t value) {
  ::cuda::atomic_ref<uint32_t, ::cuda::thread_scope_system>(*word).store(
      value, ::cuda::memory_order_release);
}

}  // namespace

StageWords::StageWords(CudaBackend& backend, int launches)
    : launches_(launches),
      words_(backend.allocate(launches * static_cast<int64_t>(kLaunchBytes))),
      copy_(std::make_unique<PinnedMemory>(launches * static_cast<int64_t>(kLaunchBytes))) {
  load_kernel(write_word);
}

void StageWords::reset(cudaStream_t stream) const {
  check_cuda(cudaMemset2DAsync(words_->data(), kLaunchBytes, 0, kWordBytes,
                               static_cast<size_t>(launches_), stream),
             "stages of late inputs");
}

void StageWords::write(int launch, uint32_t stage, const LaunchContext& context) const {
  launch_kernel({context.stream, false}, write_word, dim3(1), dim3(1), 0, of(launch), stage);
}

void StageWords::fetch(cudaStream_t stream) const {
  check_cuda(cudaMemcpyAsync(copy_->data(), words_->data(), launches_ * kLaunchBytes,
                             cudaMemcpyDeviceToHost, stream),
             "stages of late inputs");
}

void StageWords::check() const {
  const auto* words = reinterpret_cast<const uint32_t*>(copy_->data());
  for (int i = 0; i < launches_; ++i) {
    if (words[2 * i + 1] == 0) continue;
    fail(ErrorCode::kDeadline, "a launch's late inputs did not come: {} waits of it ran out",
         words[2 * i + 1]);
  }
}

}  // namespace braid::cuda
