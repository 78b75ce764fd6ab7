#include "braid/kernels/cuda/sampling/device/ring.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "braid/base/error.h"

namespace braid::cuda {
namespace {

void* pinned(size_t bytes) {
  void* p = nullptr;
  check_cuda(cudaHostAlloc(&p, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
             "pinned memory for sampled tokens");
  std::memset(p, 0, bytes);
  return p;
}

}  // namespace

void SampleRing::Free::operator()(void* p) const {
  cudaFreeHost(p);
}

SampleRing::SampleRing(int32_t ring, int32_t capacity, int32_t max_logprobs)
    : ring_(ring), capacity_(capacity), max_logprobs_(max_logprobs) {
  BRAID_CHECK(ring > 0 && capacity > 0 && 0 <= max_logprobs && max_logprobs <= kMaxLogprobs);
  const size_t n = static_cast<size_t>(ring) * static_cast<size_t>(capacity);
  records_.reset(static_cast<SampleRecord*>(pinned(n * sizeof(SampleRecord))));
  const size_t num_tops = n * static_cast<size_t>(max_logprobs);
  tops_.reset(static_cast<SampleTop*>(pinned(std::max<size_t>(1, num_tops) * sizeof(SampleTop))));
}

void SampleRing::attach(SampleCall& call) const {
  BRAID_CHECK(call.desc.capacity <= capacity_, "a ring for {} rows, a call of {}", capacity_,
              call.desc.capacity);
  call.records = records_.get();
  call.tops = tops_.get();
  call.ring = ring_;
  call.ring_rows = capacity_;
  call.max_logprobs = max_logprobs_;
}

size_t SampleRing::index(uint64_t step, int32_t row) const {
  BRAID_CHECK(0 <= row && row < capacity_, "row {} of {}", row, capacity_);
  return step % static_cast<uint64_t>(ring_) * static_cast<size_t>(capacity_) +
         static_cast<size_t>(row);
}

bool SampleRing::ready(uint64_t step, int32_t row) const {
  const uint32_t& flag = records_[index(step, row)].ready;
  return std::atomic_ref(const_cast<uint32_t&>(flag)).load(std::memory_order_acquire) ==
         static_cast<uint32_t>(step + 1);
}

bool SampleRing::wait(uint64_t step, int32_t row, std::chrono::nanoseconds timeout) const {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + timeout;
  for (int spins = 0; !ready(step, row); ++spins) {
    if (spins > 1000) std::this_thread::yield();
    if (Clock::now() > end) return ready(step, row);
  }
  return true;
}

const SampleRecord& SampleRing::record(uint64_t step, int32_t row) const {
  return records_[index(step, row)];
}

std::span<const SampleTop> SampleRing::tops(uint64_t step, int32_t row) const {
  const size_t i = index(step, row);
  return {tops_.get() + i * static_cast<size_t>(max_logprobs_),
          static_cast<size_t>(records_[i].num_top)};
}

}  // namespace braid::cuda
