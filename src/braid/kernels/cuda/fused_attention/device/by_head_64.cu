#include "braid/kernels/cuda/fused_attention/device/fused_instances.cuh"

namespace braid::cuda {

FusedKernel fused_kernel_by_head_64(int group, ExchangePath path) {
  return fused_by_head_of<64>(group, path);
}

}  // namespace braid::cuda
