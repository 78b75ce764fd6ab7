#include "braid/kernels/cuda/linear/device/skinny.cuh"

namespace braid::cuda {

template void launch_skinny<DType::f32>(const SkinnyArgs&, int, const LaunchContext&);
template void launch_skinny<DType::f16>(const SkinnyArgs&, int, const LaunchContext&);
template void launch_skinny<DType::bf16>(const SkinnyArgs&, int, const LaunchContext&);
template void allow_skinny_smem<DType::f32>();
template void allow_skinny_smem<DType::f16>();
template void allow_skinny_smem<DType::bf16>();

}  // namespace braid::cuda
