#include "braid/kernels/cuda/cluster/device/cluster_fit.h"

#include "braid/backend/cuda/launch.h"

namespace braid::cuda {

int max_active_clusters(const void* kernel, int size, int threads, int smem) {
  // All shared memory: a later, smaller launch of the kernel leaves an earlier launch its own.
  int device = 0, most = 0;
  check_cuda(cudaGetDevice(&device), "device");
  check_cuda(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "shared memory limit");
  cudaFuncAttributes is{};
  check_cuda(cudaFuncGetAttributes(&is, kernel), "load of a kernel");
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  most - static_cast<int>(is.sharedSizeBytes)),
             "shared memory of a kernel");
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
             "large clusters of a kernel");
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(size);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(size));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = smem;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  check_cuda(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config), "clusters at once");
  return clusters;
}

}  // namespace braid::cuda
