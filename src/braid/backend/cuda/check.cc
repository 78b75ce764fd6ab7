#include "braid/backend/cuda/check.h"

#include "braid/base/error.h"

namespace braid::cuda {
namespace {

// After these every call on the device fails until the process ends.
bool loses_device(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorMisalignedAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
      return true;
    default:
      return false;
  }
}

}  // namespace

void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  const bool lost = loses_device(error);
  if (!lost) cudaGetLastError();  // else the next launch would report it again
  // CUDA reports the same without any driver.
  int driver = 0;
  if (error == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess &&
      driver == 0) {
    fail(ErrorCode::kResource, "this machine has no NVIDIA driver: a GPU is needed here");
  }
  fail(ErrorCode::kResource, "{}: {}{}", what, cudaGetErrorString(error),
       lost ? " (the device is lost to this process)" : "");
}

}  // namespace braid::cuda
