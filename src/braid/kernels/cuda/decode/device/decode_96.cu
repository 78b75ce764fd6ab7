#include "braid/kernels/cuda/decode/device/decode.cuh"
#include "braid/kernels/cuda/decode/device/instances.h"

template <>
braid::cuda::DecodeKernel braid::cuda::decode_kernel_of<96>(DType dtype) {
  return dtype == DType::bf16 ? decode_kernel<__nv_bfloat16, 96, DecodeArgs>
                              : decode_kernel<__half, 96, DecodeArgs>;
}
