#include "braid/kernels/cuda/attention/device/generic.cuh"

namespace braid::cuda {

template void launch_generic<DType::bf16, 256, 256, 64>(const AttentionPlan&, cudaStream_t);
template void launch_generic<DType::f16, 256, 256, 64>(const AttentionPlan&, cudaStream_t);

}  // namespace braid::cuda
