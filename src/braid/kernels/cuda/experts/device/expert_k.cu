#include "braid/kernels/cuda/experts/device/expert_stream.cuh"

namespace braid::cuda {

template void launch_expert_stream<DType::q4_k>(const StreamArgs&, int, const LaunchContext&);
template void launch_expert_stream<DType::q5_k>(const StreamArgs&, int, const LaunchContext&);
template void launch_expert_stream<DType::q6_k>(const StreamArgs&, int, const LaunchContext&);

}  // namespace braid::cuda
