#pragma once

#include <string>
#include <variant>

#include "braid/kernels/cuda/linear/device/skinny.h"
#include "braid/kernels/cuda/linear/few_config.h"
#include "braid/kernels/cuda/linear/stream_config.h"

namespace braid::cuda {

// The kernels for few tokens behind one door: stream_linear, panel_linear, skinny_linear.
using FewConfig = std::variant<StreamConfig, PanelConfig, SkinnyConfig>;

// The fastest kernel for the call: panel if it pays, then stream up to 4 tokens, else skinny.
FewConfig choose_few(const SkinnyParams& params, const SkinnyDevice& device);

// Whether a launch for the norm, with a panel behind, is faster than a product with the norm
// inside. `params` describe the normed input of the panel, in bf16.
bool norm_goes_first(SkinnyParams params, const SkinnyDevice& device);

std::string to_string(const FewConfig& config);

// Lets the kernels use their shared memory: once per device, before any capture.
void prepare_few_linear();

// As skinny_linear, by the config's kernel.
void few_linear(const SkinnyParams& params, const FewConfig& config, LaunchContext context);

}  // namespace braid::cuda
