#include "braid/kernels/cuda/experts/device/expert_stream.cuh"

namespace braid::cuda {

template void launch_expert_stream<DType::q4_0>(const StreamArgs&, int, const LaunchContext&);
template void launch_expert_stream<DType::q4_1>(const StreamArgs&, int, const LaunchContext&);

}  // namespace braid::cuda
