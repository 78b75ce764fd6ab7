#include "braid/kernels/cuda/latent/device/attention.cuh"

namespace braid::cuda {

template void launch_latent<__half>(const LatentArgs&, const LatentConfig&, const LaunchContext&);
template void allow_latent_smem<__half>(size_t bytes);

}  // namespace braid::cuda
