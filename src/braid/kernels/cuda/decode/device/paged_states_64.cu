#include "braid/kernels/cuda/decode/device/paged_states.cuh"

template <>
braid::cuda::PagedStateKernel braid::cuda::paged_state_kernel_of<64>(DType dtype) {
  return dtype == DType::bf16 ? decode_kernel<__nv_bfloat16, 64, PagedStateArgs>
                              : decode_kernel<__half, 64, PagedStateArgs>;
}
