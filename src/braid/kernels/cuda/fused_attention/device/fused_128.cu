#include "braid/kernels/cuda/fused_attention/device/fused_instances.cuh"

namespace braid::cuda {

FusedKernel fused_kernel_128(int group, ExchangePath path) {
  return fused_kernel_of<128>(group, path);
}

}  // namespace braid::cuda
