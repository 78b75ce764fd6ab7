#pragma once

#include "braid/kernels/cuda/linear/device/skinny.h"
#include "braid/kernels/cuda/linear/stream_config.h"

namespace braid::cuda {

// skinny_linear for the fewest tokens and bf16 weights: the launch that limits the decoding speed
// of a single sequence.
StreamShape stream_shape(const SkinnyParams& params);

// Lets the kernels use their shared memory: once per device, before any capture.
void prepare_stream_linear();

// As skinny_linear, with the config's cut. With context.pdl a CTA's first weights are on their way
// before the launch ahead has ended.
void stream_linear(const SkinnyParams& params, const StreamConfig& config, LaunchContext context);

}  // namespace braid::cuda
