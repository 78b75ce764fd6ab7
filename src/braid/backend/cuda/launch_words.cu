#include "braid/backend/cuda/launch_words.h"

#include <cuda/atomic>

#include "braid/backend/cuda/cuda_backend.h"
#include "braid/backend/cuda/launch.h"
#include "braid/backend/cuda/memory.h"
#include "braid/backend/cuda/stream_words.h"
#include "braid/base/error.h"

namespace braid::cuda {
namespace {

using Memory = LaunchWords::Memory;

// Kernels, not copies: a copy that stands in a stream may share a hardware queue with those that
// bring data of a phase, and holds them up until its turn comes.
__global__ void reset_words(Memory* words, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    words[i].phases[0] = words[i].phases[LaunchWords::kWaited] = 0;
  }
}
__global__ void report_words(uint32_t* ran_out, const Memory* words, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    ran_out[i] = words[i].phases[LaunchWords::kRanOut];
  }
}

// One thread: it finds room on an SM that a launch spares.
__global__ void write_word(uint32_t* word, uint32_t value) {
  ::cuda::atomic_ref<uint32_t, ::cuda::thread_scope_system>(*word).store(
      value, ::cuda::memory_order_release);
}

}  // namespace

void LaunchWords::add(uint32_t* word, std::function<void()> ready) {
  BRAID_CHECK(asked_.num_words < EarlyWords::kMaxWords, "{} words", asked_.num_words);
  asked_.words[asked_.num_words++] = word;
  ready_.push_back(std::move(ready));
}

void LaunchWords::prepare() const {
  for (const auto& ready : ready_) ready();
}

void LaunchWords::write(cudaStream_t stream) const {
  std::vector<StreamWord> writes;
  for (uint32_t* word : words()) writes.push_back({StreamWord::Does::write, word, 1});
  put_words(stream, writes);
}

StepWords::StepWords(CudaBackend& backend, size_t launches, bool by_stream)
    : backend_(backend), by_stream_(by_stream), launches_(launches) {}

void StepWords::add(size_t launch, bool waits, bool asks) {
  std::unique_ptr<LaunchWords>& words = launches_[launch];
  if (!words) words = std::make_unique<LaunchWords>(), ++count_;
  words->waits_ = words->waits_ || waits;
  words->asks_ = words->asks_ || asks;
  waits_ = waits_ || waits;
}

void StepWords::lay_out() {
  if (count_ == 0) return;
  memory_ = backend_.allocate(int64_t{count_} * static_cast<int64_t>(sizeof(Memory)));
  ran_out_ = std::make_unique<PinnedMemory>(int64_t{count_} * 4);
  Memory* next = memory();
  for (const auto& words : launches_) {
    if (words) words->memory_ = next++;
  }
  load_kernel(reset_words);
  load_kernel(report_words);
  load_kernel(write_word);
}

void StepWords::upload() const {
  for (const auto& words : launches_) {
    if (!words || !words->asks_) continue;
    check_cuda(
        cudaMemcpy(words->asked(), &words->asked_, sizeof(EarlyWords), cudaMemcpyHostToDevice),
        "words of a launch");
  }
}

void StepWords::reset(cudaStream_t stream) const {
  if (waits_) launch_kernel({stream, false}, reset_words, dim3(1), dim3(32), 0, memory(), count_);
}

void StepWords::begin(size_t launch, uint32_t phase, cudaStream_t stream) const {
  uint32_t* const word = of(launch)->phases();
  if (by_stream_) {
    const StreamWord write{StreamWord::Does::write, word, phase};
    return put_words(stream, {&write, 1});
  }
  launch_kernel({stream, false}, write_word, dim3(1), dim3(1), 0, word, phase);
}

void StepWords::fetch(cudaStream_t stream) const {
  if (!waits_) return;
  launch_kernel({stream, false}, report_words, dim3(1), dim3(32), 0,
                reinterpret_cast<uint32_t*>(ran_out_->data()), memory(), count_);
}

void StepWords::check() const {
  if (!waits_) return;
  for (int i = 0; i < count_; ++i) {
    const uint32_t ran_out = reinterpret_cast<const uint32_t*>(ran_out_->data())[i];
    if (ran_out == 0) continue;
    fail(ErrorCode::kDeadline, "data for a launch's later phases did not come: {} waits ran out",
         ran_out);
  }
}

}  // namespace braid::cuda
