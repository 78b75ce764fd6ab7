#include "braid/kernels/cuda/decode/device/decode.cuh"
#include "braid/kernels/cuda/decode/device/instances.h"

template <>
braid::cuda::StateKernel braid::cuda::state_kernel_of<256>(DType dtype) {
  return dtype == DType::bf16 ? decode_kernel<__nv_bfloat16, 256, StateArgs>
                              : decode_kernel<__half, 256, StateArgs>;
}
