#pragma once

#include <cstddef>

#include "braid/backend/cuda/check.h"
#include "braid/backend/cuda/device.h"

namespace braid::cuda {

// Place of a kernel's launch. With `pdl` the kernel may start while the stream's previous kernel
// ends (programmatic dependent launch), and itself waits for the previous kernel's memory through
// ptx::grid_dependency_wait before touching anything but constants. Code older than Hopper's does
// not wait and never starts early.
struct LaunchContext {
  cudaStream_t stream = nullptr;
  bool pdl = false;
  bool starts_early() const { return pdl && code_capability() >= 90; }
};

// Launches kernel<<<grid, block, smem>>>(args...); more than 48 KB of `smem` must have been allowed
// for the kernel before. Capturable; allocates nothing and waits for nothing.
template <class... Params, class... Args>
void launch_kernel(const LaunchContext& context, void (*kernel)(Params...), dim3 grid, dim3 block,
                   size_t smem, Args&&... args) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = smem;
  config.stream = context.stream;
  config.attrs = &attribute;
  config.numAttrs = context.starts_early() ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...), "kernel launch");
}

// Loads `kernel`, before its first launch would: no rank may then wait on a device.
template <class Kernel>
void load_kernel(Kernel* kernel) {
  cudaFuncAttributes attributes;
  check_cuda(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)),
             "load of a kernel");
}

// Allows `kernel` as much dynamic shared memory; once, outside capture.
template <class Kernel>
void allow_shared_memory(Kernel* kernel, size_t bytes) {
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes)),
             "shared memory of a kernel");
}

}  // namespace braid::cuda
