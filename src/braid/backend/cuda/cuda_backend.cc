#include "braid/backend/cuda/cuda_backend.h"

#include <chrono>
#include <thread>

#include "braid/backend/cuda/cuda_replay.h"
#include "braid/backend/cuda/memory.h"
#include "braid/base/error.h"

namespace braid::cuda {

CudaBackend::CudaBackend(const KernelTable& table, Watch watch, const SmPartition* part)
    : table_(table), watch_(std::move(watch)) {
  const DeviceScope scope(device().id);
  for (size_t s = 0; s < kNumStreams; ++s) {
    const bool urgent = static_cast<Stream>(s) != Stream::compute;
    streams_[s] = part ? part->make_stream(urgent) : make_stream(urgent);
  }
  read_ = make_event();
}

std::unique_ptr<DeviceMemory> CudaBackend::allocate(int64_t bytes) {
  count_preparation();
  return std::make_unique<CudaMemory>(device().id, bytes);
}

std::unique_ptr<DeviceMemory> CudaBackend::allocate_staging(int64_t bytes) {
  const DeviceScope scope(device().id);
  count_preparation();
  return std::make_unique<PinnedMemory>(bytes);
}

void CudaBackend::read(std::byte* host, const std::byte* device_data, int64_t bytes) {
  transfer(host, device_data, bytes, cudaMemcpyDeviceToHost);
}

void CudaBackend::copy(std::byte* to, const std::byte* from, int64_t bytes) {
  transfer(to, from, bytes, cudaMemcpyDeviceToDevice);
}

void CudaBackend::transfer(std::byte* to, const std::byte* from, int64_t bytes,
                           cudaMemcpyKind kind) {
  const DeviceScope scope(device().id);
  const cudaStream_t main = stream(Stream::compute);
  check_cuda(cudaMemcpyAsync(to, from, bytes, kind, main), "reading a GPU's memory");
  record(read_, main);
  wait(read_.get());
}

std::unique_ptr<Replay> CudaBackend::bind(BoundStep step) {
  count_preparation();
  return std::make_unique<CudaReplay>(*this, std::move(step));
}

void CudaBackend::check() const {
  for (const OwnedStream& stream : streams_) {
    const cudaError_t state = cudaStreamQuery(stream.get());
    if (state != cudaErrorNotReady) check_cuda(state, device().name.c_str());
  }
  check_job();
}

void CudaBackend::check_job() const {
  if (watch_) watch_();
}

void CudaBackend::wait(cudaEvent_t event) const {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int polls = 0;; ++polls) {
    const cudaError_t state = cudaEventQuery(event);
    if (state == cudaSuccess) {
      check_job();  // a kernel's expired wait ends the stream, too
      return;
    }
    if (state != cudaErrorNotReady) check_cuda(state, device().name.c_str());
    if (polls % 64 != 63) continue;
    check_job();
    const std::chrono::duration<double> waited = Clock::now() - start;
    if (waited.count() > kDeadlineSeconds) {
      fail(ErrorCode::kDeadline, "cuda:{}: a step did not end within {} s", device().id,
           kDeadlineSeconds);
    }
    if (waited.count() > 1e-3) std::this_thread::yield();
  }
}

}  // namespace braid::cuda
