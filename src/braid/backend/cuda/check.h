#pragma once

#include <cuda_runtime.h>

namespace braid::cuda {

// Throws unless `error` is success: Error(kResource) with `what` and the driver's text. For a
// sticky error (a faulted kernel) the message says that the device is lost.
void check_cuda(cudaError_t error, const char* what);

}  // namespace braid::cuda
