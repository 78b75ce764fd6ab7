#include "braid/kernels/cuda/relay/device/relay.cuh"
#include "braid/kernels/cuda/relay/device/relay_kernel.h"

namespace braid::cuda {
namespace {

using RelayKernel = void (*)(const RelayArgs);

template <int kD, int kNorm, bool kRanked>
RelayKernel kernel_of_weights(const RelayConfig& c) {
  return c.blocks ? relay_kernel<kD, kNorm, kRanked, true>
                  : relay_kernel<kD, kNorm, kRanked, false>;
}

template <int kD, int kNorm>
RelayKernel kernel_of_ranks(const RelayConfig& c) {
  return c.ranked ? kernel_of_weights<kD, kNorm, true>(c) : kernel_of_weights<kD, kNorm, false>(c);
}

template <int kD>
RelayKernel kernel_of_norm(const RelayConfig& c) {
  return c.norm == kRelayFewNorm ? kernel_of_ranks<kD, kRelayFewNorm>(c)
                                 : kernel_of_ranks<kD, kRelayMaxNorm>(c);
}

RelayKernel kernel_for(const RelayConfig& c) {
  return c.head_dim == 0    ? kernel_of_norm<0>(c)
         : c.head_dim == 64 ? kernel_of_norm<64>(c)
                            : kernel_of_norm<128>(c);
}

}  // namespace

int prepare_relay_kernel(const RelayConfig& config, int64_t most_shared) {
  const RelayKernel kernel = kernel_for(config);
  // Configs share kernels, and the newest limit counts for all.
  allow_shared_memory(kernel, static_cast<size_t>(most_shared));
  load_kernel(kernel);
  int fit = 0;
  check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                 &fit, kernel, kRelayBlock, static_cast<size_t>(config.shared_bytes)),
             "a relay's occupancy");
  return fit;
}

void launch_relay_kernel(const RelayConfig& config, const RelayArgs& args, cudaStream_t stream) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(static_cast<unsigned>(config.ctas));
  launch.blockDim = dim3(kRelayBlock);
  launch.dynamicSmemBytes = static_cast<size_t>(config.shared_bytes);
  launch.stream = stream;
  launch.attrs = &attribute;
  launch.numAttrs = 1;
  check_cuda(cudaLaunchKernelEx(&launch, kernel_for(config), args), "a relay");
}

}  // namespace braid::cuda
