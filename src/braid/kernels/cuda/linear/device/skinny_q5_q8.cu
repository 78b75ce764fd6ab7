#include "braid/kernels/cuda/linear/device/skinny.cuh"

namespace braid::cuda {

template void launch_skinny<DType::q5_0>(const SkinnyArgs&, int, const LaunchContext&);
template void launch_skinny<DType::q5_1>(const SkinnyArgs&, int, const LaunchContext&);
template void launch_skinny<DType::q8_0>(const SkinnyArgs&, int, const LaunchContext&);
template void allow_skinny_smem<DType::q5_0>();
template void allow_skinny_smem<DType::q5_1>();
template void allow_skinny_smem<DType::q8_0>();

}  // namespace braid::cuda
