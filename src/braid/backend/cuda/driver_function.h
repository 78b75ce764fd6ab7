#pragma once

namespace braid::cuda {

// A function of the CUDA driver by its name, so that the program starts where there is no driver.
// Fails with kUnsupported where the driver has none, as of `version` (12000 is CUDA 12.0) or later.
void* driver_function(const char* name, unsigned version);

template <class Function>
Function* driver_function(const char* name, unsigned version = 12000) {
  return reinterpret_cast<Function*>(driver_function(name, version));
}

}  // namespace braid::cuda
