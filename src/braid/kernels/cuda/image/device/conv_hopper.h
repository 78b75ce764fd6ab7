#pragma once

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/image/conv_config.h"

namespace braid::cuda {

struct ConvArgs;

// Convolutions by products of Hopper's warpgroups: bf16, channels in whole blocks of 64, stride 1.
void load_conv_hopper(int block_n);
// Fails with kUnsupported on another config. Uses at most `num_sms` CTAs, in pairs.
void conv_hopper(const ConvArgs& args, int num_sms, const ConvConfig& config,
                 const LaunchContext& context);

}  // namespace braid::cuda
