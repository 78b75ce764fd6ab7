#include "braid/kernels/cuda/fused_attention/device/fused_instances.cuh"

namespace braid::cuda {

FusedKernel fused_kernel_by_head_128(int group, ExchangePath path) {
  return fused_by_head_of<128>(group, path);
}

}  // namespace braid::cuda
