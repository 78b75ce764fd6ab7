#include "braid/kernels/cuda/latent/device/attention.cuh"

namespace braid::cuda {

template void launch_latent<float>(const LatentArgs&, const LatentConfig&, const LaunchContext&);
template void allow_latent_smem<float>(size_t bytes);

}  // namespace braid::cuda
