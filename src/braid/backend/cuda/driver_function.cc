#include "braid/backend/cuda/driver_function.h"

#include "braid/backend/cuda/check.h"
#include "braid/base/error.h"

namespace braid::cuda {

void* driver_function(const char* name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  check_cuda(cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found),
             name);
  if (found != cudaDriverEntryPointSuccess) {
    fail(ErrorCode::kUnsupported, "the CUDA driver has no {}", name);
  }
  return function;
}

}  // namespace braid::cuda
