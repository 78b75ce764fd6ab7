#pragma once

#include "braid/backend/cuda/launch.h"

namespace braid::cuda {

// As launch_kernel, for clusters of `size` CTAs.
template <class Args>
void launch_clusters(const LaunchContext& context, void (*kernel)(const Args), int clusters,
                     int size, int threads, int smem, const Args& args) {
  cudaLaunchAttribute attributes[2];
  unsigned count = 0;
  if (size > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = static_cast<unsigned>(size);
    attributes[count].val.clusterDim.y = attributes[count].val.clusterDim.z = 1;
    ++count;
  }
  if (context.starts_early()) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(clusters * size));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(smem);
  config.stream = context.stream;
  config.attrs = attributes;
  config.numAttrs = count;
  check_cuda(cudaLaunchKernelEx(&config, kernel, args), "launch of clusters");
}

// Lets `kernel` use all shared memory of a CTA.
template <class Kernel>
void allow_all_shared_memory(Kernel* kernel) {
  int device = 0, most = 0;
  check_cuda(cudaGetDevice(&device), "device");
  check_cuda(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "shared memory limit");
  allow_shared_memory(kernel, static_cast<size_t>(most));
  // A launch shares an SM with the launch before only if both want the same split of L1.
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared),
             "shared memory carveout");
}

}  // namespace braid::cuda
