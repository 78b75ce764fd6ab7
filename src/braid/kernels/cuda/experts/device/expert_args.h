#pragma once

#include "braid/kernels/cuda/experts/device/expert_product.h"

namespace braid::cuda {

// Arguments for a launch of the stream kernel.
struct StreamArgs {
  ExpertProduct p;
  int ways = 1;
  bool aligned = true;
};

// Launches the instance for the dtype. Each expert_*.cu defines some dtypes.
template <DType kType>
void launch_expert_stream(const StreamArgs& args, int ctas, const LaunchContext& context);

// The kernel of tiles (tiles_take).
void launch_expert_tiles(const ExpertProduct& product, int ctas, const LaunchContext& context);
void allow_tiles_smem();

}  // namespace braid::cuda
