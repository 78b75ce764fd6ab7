#include "braid/kernels/cuda/fused_attention/device/batch_instances.cuh"

namespace braid::cuda {

FusedKernel fused_wide_kernel_64(DType cache, ExchangePath path) {
  return fused_batch_kernel_of<64, kFusedMaxGroup / kFusedSetHeads>(cache, path);
}

}  // namespace braid::cuda
