#include "braid/backend/cuda/device.h"
#include "braid/backend/cuda/launch.h"

namespace braid::cuda {
namespace {

__global__ void probe() {}

}  // namespace

int code_capability() {
  cudaFuncAttributes attributes;
  check_cuda(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(probe)),
             "code for this GPU");
  return attributes.ptxVersion;
}

}  // namespace braid::cuda
