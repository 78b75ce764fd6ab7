#pragma once

#include <cuda_runtime.h>

namespace braid::cuda {

// Throws unless `error` is success: Error(kResource) that names `what` and says what the driver
// said. Of a sticky error (a kernel that faulted) the message says that the device is lost.
void check_cuda(cudaError_t error, const char* what);

}  // namespace braid::cuda
