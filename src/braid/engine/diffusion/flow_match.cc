#include "braid/engine/diffusion/flow_match.h"

#include <cmath>

#include "braid/base/error.h"
#include "braid/model/component_config.h"

namespace braid {

FlowMatchConfig read_flow_match_config(const JsonObject& config) {
  constexpr std::string_view kClass = "FlowMatchEulerDiscreteScheduler";
  if (const auto name = config.get<std::string>("_class_name"); name != kClass) {
    fail(ErrorCode::kUnsupported, "scheduler: class {} is not supported, wanted is {}", name,
         kClass);
  }
  for (const char* key : {"use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas",
                          "stochastic_sampling", "invert_sigmas", "use_flow_sigmas"}) {
    if (config.get_or<bool>(key, false)) {
      fail(ErrorCode::kUnsupported, "scheduler: {} is true, which is not supported", key);
    }
  }
  require_known_fields(
      config, "scheduler", ConfigWriter::diffusers,
      {"num_train_timesteps", "shift", "use_dynamic_shifting", "base_shift", "max_shift",
       "base_image_seq_len", "max_image_seq_len", "invert_sigmas", "shift_terminal",
       "use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas", "use_flow_sigmas",
       "time_shift_type", "stochastic_sampling"});
  const FlowMatchConfig otherwise;
  FlowMatchConfig c{
      .train_timesteps = config.get_or<double>("num_train_timesteps", otherwise.train_timesteps),
      .shift = config.get_or<double>("shift", otherwise.shift),
      .dynamic_shift = config.get_or<bool>("use_dynamic_shifting", otherwise.dynamic_shift),
      .base_shift = config.get_or<double>("base_shift", otherwise.base_shift),
      .max_shift = config.get_or<double>("max_shift", otherwise.max_shift),
      .base_tokens = config.get_or<double>("base_image_seq_len", otherwise.base_tokens),
      .max_tokens = config.get_or<double>("max_image_seq_len", otherwise.max_tokens),
      .terminal = config.get_or<double>("shift_terminal", otherwise.terminal)};
  const auto type = config.get_or<std::string>("time_shift_type", "exponential");
  if (type != "exponential" && type != "linear") {
    fail(ErrorCode::kUnsupported,
         "scheduler: time_shift_type is {}, wanted is exponential or linear", type);
  }
  c.linear_shift = type == "linear";
  if (!(c.train_timesteps >= 1) || !(c.shift > 0) || !(c.max_tokens > c.base_tokens) ||
      !(c.terminal >= 0 && c.terminal < 1)) {
    fail(
        ErrorCode::kUnsupported,
        "scheduler: num_train_timesteps {}, shift {}, base_image_seq_len {}, max_image_seq_len {}, "
        "shift_terminal {}: one of them is out of its range",
        c.train_timesteps, c.shift, c.base_tokens, c.max_tokens, c.terminal);
  }
  return c;
}

std::vector<float> flow_match_sigmas(const FlowMatchConfig& c, int64_t steps,
                                     int64_t image_tokens) {
  BRAID_CHECK(steps >= 1, "{} steps", steps);
  const auto n = static_cast<size_t>(steps);
  // n points from 1 to 1 / n.
  const double end = 1.0 / static_cast<double>(steps);
  const double stride = n == 1 ? 0 : (end - 1.0) / static_cast<double>(steps - 1);
  std::vector<float> sigmas(n);
  for (size_t i = 0; i < n; ++i) {
    sigmas[i] = static_cast<float>(static_cast<double>(i) * stride + 1.0);
  }
  if (n > 1) sigmas.back() = static_cast<float>(end);
  if (c.dynamic_shift) {
    const double m = (c.max_shift - c.base_shift) / (c.max_tokens - c.base_tokens);
    const double b = c.base_shift - m * c.base_tokens;
    const double mu = static_cast<double>(image_tokens) * m + b;
    const auto factor = static_cast<float>(c.linear_shift ? mu : std::exp(mu));
    for (float& s : sigmas) s = factor / (factor + (1 / s - 1));
  } else {
    const auto shift = static_cast<float>(c.shift);
    const auto less = static_cast<float>(c.shift - 1);
    for (float& s : sigmas) s = shift * s / (1 + less * s);
  }
  if (c.terminal != 0) {
    const float factor = (1 - sigmas.back()) / static_cast<float>(1 - c.terminal);
    for (float& s : sigmas) s = 1 - ((1 - s) / factor);
  }
  sigmas.push_back(0);
  return sigmas;
}

void euler_step(std::span<float> x, std::span<const float> velocity, float sigma,
                float sigma_next) {
  BRAID_CHECK(x.size() == velocity.size(), "{} latents, {} velocities", x.size(), velocity.size());
  const float dt = sigma_next - sigma;
  for (size_t i = 0; i < x.size(); ++i) x[i] += dt * velocity[i];
}

}  // namespace braid
