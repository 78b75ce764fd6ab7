#include "braid/backend/cuda/device.h"

#include <cuda.h>

#include "braid/backend/cuda/check.h"
#include "braid/backend/cuda/driver_function.h"
#include "braid/base/error.h"

namespace braid::cuda {
namespace {

int attribute(cudaDeviceAttr which, int id) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, which, id), "device attribute");
  return value;
}

// Whether this process has a context there.
bool is_started(int id) {
  static const auto context_state =
      driver_function<decltype(cuDevicePrimaryCtxGetState)>("cuDevicePrimaryCtxGetState");
  unsigned flags = 0;
  int active = 0;
  return context_state(id, &flags, &active) == CUDA_SUCCESS && active != 0;
}

}  // namespace

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return count;
}

DeviceInfo device_info(int id) {
  const int count = device_count();
  if (count == 0) fail(ErrorCode::kResource, "this machine has no GPU that CUDA can use");
  if (id < 0 || id >= count) {
    fail(ErrorCode::kResource, "cuda:{}: this machine has GPUs 0 to {}", id, count - 1);
  }
  const DeviceScope scope(id);
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, id), "device properties");
  if (properties.major < 8) {
    fail(ErrorCode::kUnsupported, "cuda:{}: {} has compute capability {}.{} (wanted 8.0 or more)",
         id, properties.name, properties.major, properties.minor);
  }
  return {.id = id,
          .name = properties.name,
          .compute_capability = code_capability(),
          .num_sms = properties.multiProcessorCount,
          .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
          .shared_memory_per_sm = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, id),
          .shared_memory_per_cta = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, id)};
}

DeviceScope::DeviceScope(int id) {
  check_cuda(cudaGetDevice(&before_), "current device");
  if (before_ == id) return;
  // To go back to a GPU that this process has not started would start it: a second, and half a GB
  // of its memory. The thread then keeps `id`.
  if (!is_started(before_)) before_ = id;
  check_cuda(cudaSetDevice(id), "choice of a device");
}

DeviceScope::~DeviceScope() {
  cudaSetDevice(before_);
}

}  // namespace braid::cuda
