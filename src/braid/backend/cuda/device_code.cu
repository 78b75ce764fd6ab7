#include <array>
#include <atomic>

#include "braid/backend/cuda/device.h"
#include "braid/backend/cuda/launch.h"

namespace braid::cuda {
namespace {

__global__ void probe() {}

int loaded_code() {
  cudaFuncAttributes attributes;
  check_cuda(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(probe)),
             "code for this GPU");
  return attributes.ptxVersion;
}

}  // namespace

int code_capability() {
  static std::array<std::atomic<int>, 64> known;  // [devices], 0: not asked yet; asked by launches
  int device = 0;
  check_cuda(cudaGetDevice(&device), "current device");
  if (device >= static_cast<int>(known.size())) return loaded_code();
  std::atomic<int>& code = known[static_cast<size_t>(device)];
  if (code.load(std::memory_order_relaxed) == 0) code = loaded_code();
  return code.load(std::memory_order_relaxed);
}

}  // namespace braid::cuda
