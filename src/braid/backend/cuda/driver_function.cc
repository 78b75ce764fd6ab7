#include "braid/backend/cuda/driver_function.h"

#include "braid/backend/cuda/check.h"
#include "braid/backend/cuda/toolkit.h"
#include "braid/base/error.h"

namespace braid::cuda {

void* driver_function(const char* name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  check_cuda(toolkit::get_driver_function(name, version, &function, &found), name);
  if (found != cudaDriverEntryPointSuccess) {
    fail(ErrorCode::kUnsupported, "the CUDA driver has no {} for a build with CUDA {}.{}", name,
         CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  }
  return function;
}

}  // namespace braid::cuda
