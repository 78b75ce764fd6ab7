#pragma once

#include "braid/kernels/cuda/linear/device/skinny.h"
#include "braid/kernels/cuda/linear/panel_config.h"

namespace braid::cuda {

// skinny_linear for 5 to 64 tokens (panel_takes): the product of batched decoding.
PanelShape panel_shape(const SkinnyParams& params);

// Lets the kernels use their shared memory: once per device, before any capture.
void prepare_panel_linear();

// As skinny_linear, with the config's cut. With context.pdl a CTA's ring is full of weights before
// the launch ahead has ended.
void panel_linear(const SkinnyParams& params, const PanelConfig& config, LaunchContext context);

}  // namespace braid::cuda
