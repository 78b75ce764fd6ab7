#pragma once

#include <chrono>
#include <functional>

#include "braid/backend/cuda/cuda_backend.h"

namespace braid::cuda {

inline constexpr std::chrono::seconds kDeviceDeadline{120};  // of a wait for a device

// Waits until `done`, which looks at memory that the device writes. Fails with kDeadline after
// kDeviceDeadline, naming `what`, or with the device's error.
void wait_for_device(CudaBackend& backend, const std::function<bool()>& done, const char* what);

}  // namespace braid::cuda
