#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/relay/device/relay_args.h"
#include "braid/kernels/cuda/relay/relay_config.h"

namespace braid::cuda {

constexpr int kRelayBlock = 32 * (kRelayWarps + kRelayProducers);  // threads of a CTA

// Loads a config's kernel on this thread's device with `most_shared` bytes for each CTA; returns
// the number of CTAs that fit on an SM.
int prepare_relay_kernel(const RelayConfig& config, int64_t most_shared);

// All CTAs run at once, or the launch fails.
void launch_relay_kernel(const RelayConfig& config, const RelayArgs& args, cudaStream_t stream);

}  // namespace braid::cuda
