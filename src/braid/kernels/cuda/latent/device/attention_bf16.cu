#include "braid/kernels/cuda/latent/device/attention.cuh"

namespace braid::cuda {

template void launch_latent<__nv_bfloat16>(const LatentArgs&, const LatentConfig&,
                                           const LaunchContext&);
template void allow_latent_smem<__nv_bfloat16>(size_t bytes);

}  // namespace braid::cuda
