#include "braid/kernels/cuda/linear/device/skinny.cuh"

namespace braid::cuda {

template void launch_skinny<DType::q4_k>(const SkinnyArgs&, int, const LaunchContext&);
template void launch_skinny<DType::q5_k>(const SkinnyArgs&, int, const LaunchContext&);
template void launch_skinny<DType::q6_k>(const SkinnyArgs&, int, const LaunchContext&);
template void allow_skinny_smem<DType::q4_k>();
template void allow_skinny_smem<DType::q5_k>();
template void allow_skinny_smem<DType::q6_k>();

}  // namespace braid::cuda
