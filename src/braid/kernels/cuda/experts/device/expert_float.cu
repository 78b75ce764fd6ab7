#include "braid/kernels/cuda/experts/device/expert_stream.cuh"

namespace braid::cuda {

template void launch_expert_stream<DType::bf16>(const StreamArgs&, int, const LaunchContext&);
template void launch_expert_stream<DType::f16>(const StreamArgs&, int, const LaunchContext&);
template void launch_expert_stream<DType::f32>(const StreamArgs&, int, const LaunchContext&);

}  // namespace braid::cuda
