#include "golden/cuda/busy_gpu.h"

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/ptx/system.h"

namespace braid::golden {
namespace {

constexpr int kThreads = 1024;

__global__ void busy_kernel(uint64_t nanoseconds) {
  const uint64_t begin = cuda::ptx::global_nanoseconds();
  while (cuda::ptx::global_nanoseconds() - begin < nanoseconds) {
  }
}

}  // namespace

BusyGpu::BusyGpu(int device) : device_(device) {
  const cuda::DeviceScope scope(device_);
  int sms = 0, threads = 0;
  cuda::check_cuda(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device_), "SMs");
  cuda::check_cuda(
      cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device_), "threads");
  ctas_ = sms * (threads / kThreads);
  stream_ = cuda::make_stream(true);
  cuda::load_kernel(busy_kernel);
}

BusyGpu::~BusyGpu() {
  const cuda::DeviceScope scope(device_);
  cudaStreamSynchronize(stream_.get());
  stream_.reset();
}

void BusyGpu::begin(std::chrono::milliseconds time) {
  const cuda::DeviceScope scope(device_);
  cuda::launch_kernel({stream_.get()}, busy_kernel, ctas_, kThreads, 0,
                      static_cast<uint64_t>(time.count()) * 1'000'000);
}

}  // namespace braid::golden
