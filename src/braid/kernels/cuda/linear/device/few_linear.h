#pragma once

#include <string>
#include <variant>

#include "braid/kernels/cuda/linear/device/skinny.h"
#include "braid/kernels/cuda/linear/panel_config.h"
#include "braid/kernels/cuda/linear/stream_config.h"

namespace braid::cuda {

// The kernels for few tokens behind one door: stream_linear, panel_linear, skinny_linear.
using FewConfig = std::variant<StreamConfig, PanelConfig, SkinnyConfig>;

// The fastest that takes the call: stream to 4 tokens, panel from 5 to 64, else skinny.
FewConfig choose_few(const SkinnyParams& params, const SkinnyDevice& device);

std::string to_string(const FewConfig& config);

// Lets the kernels use their shared memory: once per device, before any capture.
void prepare_few_linear();

// As skinny_linear, by the config's kernel.
void few_linear(const SkinnyParams& params, const FewConfig& config, LaunchContext context);

}  // namespace braid::cuda
