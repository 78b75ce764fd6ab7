#pragma once

#include "braid/kernels/cuda/latent/device/latent.h"

namespace braid::cuda {

// Arguments for a launch.
struct LatentArgs {
  LatentParams p;
  int shares = 1;
  int blocks = 0;  // CTAs of each share
};

// Launches the instance for the cache's type. Each attention_*.cu defines one.
template <class C>
void launch_latent(const LatentArgs& args, const LatentConfig& config,
                   const LaunchContext& context);
template <class C>
void allow_latent_smem(size_t bytes);

}  // namespace braid::cuda
