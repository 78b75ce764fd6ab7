#include "braid/kernels/cuda/linear/device/skinny.cuh"

namespace braid::cuda {

template void launch_skinny<DType::q4_0>(const SkinnyArgs&, int, const LaunchContext&);
template void launch_skinny<DType::q4_1>(const SkinnyArgs&, int, const LaunchContext&);
template void allow_skinny_smem<DType::q4_0>();
template void allow_skinny_smem<DType::q4_1>();

}  // namespace braid::cuda
