#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/relay/device/relay_args.h"
#include "braid/kernels/cuda/relay/relay_config.h"

namespace braid::cuda {

constexpr int kRelayBlock = 32 * (kRelayWarps + kRelayProducers);  // threads of a CTA

// Loads the kernel of a config on this thread's device, which gives a CTA `most_shared` bytes: how
// many of its CTAs fit on an SM.
int prepare_relay_kernel(const RelayConfig& config, int64_t most_shared);

// All CTAs are there at once, or the launch fails.
void launch_relay_kernel(const RelayConfig& config, const RelayArgs& args, cudaStream_t stream);

}  // namespace braid::cuda
