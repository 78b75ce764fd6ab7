#pragma once

namespace braid::cuda {

// A function of the CUDA driver by name: the program then starts without a driver, too. Fails with
// kUnsupported if the driver lacks the function in `version` (12000 is CUDA 12.0) or later.
void* driver_function(const char* name, unsigned version);

template <class Function>
Function* driver_function(const char* name, unsigned version = 12000) {
  return reinterpret_cast<Function*>(driver_function(name, version));
}

}  // namespace braid::cuda
