#pragma once

#include <span>
#include <string>
#include <vector>

#include "braid/io/json_object.h"

namespace braid {

// The sampler of flow-matching models: Euler steps along a straight path from noise at sigma 1 to
// an image at sigma 0 (FlowMatchEulerDiscreteScheduler). All arithmetic is f32, in diffusers'
// order.
struct FlowMatchConfig {
  double train_timesteps = 1000;
  double shift = 1;
  bool dynamic_shift = false;  // by the number of image tokens, as follows
  double base_shift = 0.5, max_shift = 1.15;
  double base_tokens = 256, max_tokens = 4096;
  bool linear_shift = false;  // dynamic_shift: mu itself in place of e^mu
  double terminal = 0;        // stretches sigmas to end here; 0: no stretch
  bool operator==(const FlowMatchConfig&) const = default;
};

// Reads scheduler_config.json. Fails with kUnsupported on another class, and on options that change
// the result and that Braid does not have, by name.
FlowMatchConfig read_flow_match_config(const JsonObject& config);

// The noise levels of n steps, [n + 1]: the last is 0.
std::vector<float> flow_match_sigmas(const FlowMatchConfig& config, int64_t steps,
                                     int64_t image_tokens);

// One step: x += (sigma_next - sigma) * velocity.
void euler_step(std::span<float> x, std::span<const float> velocity, float sigma, float sigma_next);

}  // namespace braid
