#include "braid/backend/cuda/memory.h"

#include <algorithm>
#include <cstring>

#include "braid/backend/cuda/check.h"
#include "braid/backend/cuda/device.h"
#include "braid/base/error.h"

namespace braid::cuda {

CudaMemory::CudaMemory(int device, int64_t bytes)
    : device_(device), bytes_(std::max<int64_t>(bytes, 1)) {
  const DeviceScope scope(device);
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes_);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    fail(ErrorCode::kResource, "cuda:{} cannot give {} bytes of memory: {} of {} are free", device,
         bytes_, free, total);
  }
  check_cuda(error, "memory of a GPU");
  data_ = static_cast<std::byte*>(data);
  check_cuda(cudaMemset(data_, 0, bytes_), "clearing a GPU's memory");
  // Braid's streams do not wait for the clearing stream.
  check_cuda(cudaStreamSynchronize(nullptr), "clearing a GPU's memory");
}

CudaMemory::~CudaMemory() {
  cudaFree(data_);
}

PinnedMemory::PinnedMemory(int64_t bytes) : bytes_(std::max<int64_t>(bytes, 1)) {
  void* data = nullptr;
  check_cuda(cudaHostAlloc(&data, bytes_, cudaHostAllocPortable | cudaHostAllocMapped),
             "pinned host memory");
  data_ = static_cast<std::byte*>(data);
  std::memset(data_, 0, bytes_);
}

PinnedMemory::~PinnedMemory() {
  cudaFreeHost(data_);
}

}  // namespace braid::cuda
