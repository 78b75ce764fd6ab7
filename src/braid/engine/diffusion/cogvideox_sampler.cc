#include "braid/engine/diffusion/cogvideox_sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "braid/base/error.h"
#include "braid/model/component_config.h"

namespace braid {
namespace {

using Config = CogVideoXSamplerConfig;
constexpr std::string_view kComponent = "scheduler";

// The cumulative alphas of training: scaled-linear betas, shifted in signal-to-noise.
std::vector<double> cumulative_alphas(const Config& c) {
  const auto n = static_cast<size_t>(c.train_timesteps);
  const double begin = std::sqrt(c.beta_start), end = std::sqrt(c.beta_end);
  const double step = n > 1 ? (end - begin) / static_cast<double>(n - 1) : 0;
  std::vector<double> alphas(n);
  double product = 1;
  for (size_t i = 0; i < n; ++i) {
    const double root = i < n / 2 ? begin + (step * static_cast<double>(i))
                                  : end - (step * static_cast<double>(n - 1 - i));
    product *= 1 - (root * root);
    alphas[i] = product / (c.snr_shift + ((1 - c.snr_shift) * product));
  }
  if (!c.zero_snr) return alphas;
  const double first = std::sqrt(alphas.front()), last = std::sqrt(alphas.back());
  for (double& a : alphas) {
    const double root = (std::sqrt(a) - last) * (first / (first - last));
    a = root * root;
  }
  return alphas;
}

std::vector<int64_t> timesteps_of(const Config& c, int64_t steps) {
  std::vector<int64_t> t;
  const auto train = static_cast<double>(c.train_timesteps), n = static_cast<double>(steps);
  switch (c.spacing) {
    case Config::Spacing::leading:
      for (int64_t i = steps - 1; i >= 0; --i) {
        t.push_back((i * (c.train_timesteps / steps)) + c.steps_offset);
      }
      break;
    case Config::Spacing::linspace: {
      const double stride = steps > 1 ? (train - 1) / (n - 1) : 0;
      for (int64_t i = steps - 1; i >= 0; --i) {
        t.push_back(std::llrint(static_cast<double>(i) * stride));
      }
      break;
    }
    case Config::Spacing::trailing: {
      // Equals numpy.arange, without the extra timestep -1 that rounding adds, for example with 61
      // steps.
      const double difference = (train - (train / n)) - train;
      for (int64_t i = 0; i < steps; ++i) {
        t.push_back(std::llrint(train + (static_cast<double>(i) * difference)) - 1);
      }
      break;
    }
  }
  return t;
}

}  // namespace

CogVideoXSamplerConfig read_cogvideox_sampler_config(const JsonObject& config) {
  require_text(config, kComponent, "_class_name",
               {"CogVideoXDDIMScheduler", "CogVideoXDPMScheduler"});
  require_text(config, kComponent, "beta_schedule", {"scaled_linear"});
  require_text(config, kComponent, "prediction_type", {"epsilon", "sample", "v_prediction"});
  require_text(config, kComponent, "timestep_spacing", {"leading", "linspace", "trailing"});
  if (config.contains("trained_betas")) {
    fail(ErrorCode::kUnsupported, "{}: trained_betas is there, which is not supported", kComponent);
  }
  // diffusers reads none of the fields about clipping.
  require_known_fields(
      config, kComponent, ConfigWriter::diffusers,
      {"num_train_timesteps", "beta_start", "beta_end", "beta_schedule", "snr_shift_scale",
       "rescale_betas_zero_snr", "set_alpha_to_one", "prediction_type", "timestep_spacing",
       "steps_offset", "clip_sample", "clip_sample_range", "sample_max_value"});
  const Config otherwise;
  const auto prediction = config.get_or<std::string>("prediction_type", "epsilon");
  const auto spacing = config.get_or<std::string>("timestep_spacing", "leading");
  const Config c{.method = config.get<std::string>("_class_name") == "CogVideoXDPMScheduler"
                               ? Config::Method::dpm
                               : Config::Method::ddim,
                 .train_timesteps = read_count(config, kComponent, "num_train_timesteps", 1000),
                 .beta_start = config.get_or<double>("beta_start", otherwise.beta_start),
                 .beta_end = config.get_or<double>("beta_end", otherwise.beta_end),
                 .snr_shift = config.get_or<double>("snr_shift_scale", otherwise.snr_shift),
                 .zero_snr = config.get_or<bool>("rescale_betas_zero_snr", false),
                 .final_one = config.get_or<bool>("set_alpha_to_one", true),
                 .prediction = prediction == "epsilon"  ? Config::Prediction::epsilon
                               : prediction == "sample" ? Config::Prediction::sample
                                                        : Config::Prediction::velocity,
                 .spacing = spacing == "leading"    ? Config::Spacing::leading
                            : spacing == "linspace" ? Config::Spacing::linspace
                                                    : Config::Spacing::trailing,
                 .steps_offset = config.get_or<int64_t>("steps_offset", 0)};
  if (!(c.beta_start > 0 && c.beta_start < c.beta_end && c.beta_end < 1) || !(c.snr_shift > 0) ||
      c.steps_offset < 0 || c.steps_offset >= c.train_timesteps) {
    fail(ErrorCode::kUnsupported,
         "scheduler: beta_start {}, beta_end {}, snr_shift_scale {}, steps_offset {}: one of them "
         "is out of its range",
         c.beta_start, c.beta_end, c.snr_shift, c.steps_offset);
  }
  return c;
}

CogVideoXSampler::CogVideoXSampler(const CogVideoXSamplerConfig& config, int64_t steps)
    : config_(config), alphas_(cumulative_alphas(config)) {
  if (steps < 1 || steps > config.train_timesteps) {
    fail(ErrorCode::kInvalidArgument, "the number of steps is {}, wanted 1 to {}", steps,
         config.train_timesteps);
  }
  timesteps_ = timesteps_of(config, steps);
  if (timesteps_[0] >= config.train_timesteps) {
    fail(ErrorCode::kInvalidArgument, "{} steps begin at timestep {}: training ends at {}", steps,
         timesteps_[0], config.train_timesteps - 1);
  }
  stride_ = config.train_timesteps / steps;
}

double CogVideoXSampler::alpha(int64_t timestep) const {
  if (timestep >= 0) return alphas_.at(static_cast<size_t>(timestep));
  return config_.final_one ? 1 : alphas_[0];
}

// The clean latents behind a prediction.
std::vector<float> CogVideoXSampler::clean(double a, std::span<const float> prediction,
                                           std::span<const float> latents) const {
  const auto signal = static_cast<float>(std::sqrt(a)),
             noise = static_cast<float>(std::sqrt(1 - a));
  std::vector<float> x(prediction.begin(), prediction.end());
  for (size_t i = 0; i < x.size(); ++i) {
    switch (config_.prediction) {
      case Config::Prediction::velocity:
        x[i] = (signal * latents[i]) - (noise * prediction[i]);
        break;
      case Config::Prediction::epsilon:
        x[i] = (latents[i] - (noise * prediction[i])) / signal;
        break;
      case Config::Prediction::sample:
        break;
    }
  }
  return x;
}

void CogVideoXSampler::step(int64_t i, std::span<const float> prediction, std::span<float> latents,
                            const std::function<void(std::span<float>)>& noise) {
  BRAID_CHECK(prediction.size() == latents.size(), "{} predictions of {} latents",
              prediction.size(), latents.size());
  const int64_t t = timesteps_.at(static_cast<size_t>(i));
  const double a = alpha(t), next = alpha(t - stride_);
  std::vector<float> x0 = clean(a, prediction, latents);
  if (config_.method == Config::Method::ddim) {
    const double k = std::sqrt((1 - next) / (1 - a));
    const auto of_latents = static_cast<float>(k);
    const auto of_clean = static_cast<float>(std::sqrt(next) - (std::sqrt(a) * k));
    for (size_t n = 0; n < x0.size(); ++n) {
      latents[n] = (of_latents * latents[n]) + (of_clean * x0[n]);
    }
    return;
  }
  // Half the logarithm of signal over noise; infinite at both ends.
  const auto lambda = [](double alpha) { return std::log(std::sqrt(alpha / (1 - alpha))); };
  const double h = lambda(next) - lambda(a);
  const auto of_latents = static_cast<float>(std::sqrt((1 - next) / (1 - a)) * std::exp(-h));
  const auto of_clean = static_cast<float>(std::expm1(-2 * h) * std::sqrt(next));
  const auto of_noise = static_cast<float>(std::sqrt(1 - next) * std::sqrt(1 - std::exp(-2 * h)));
  std::vector<float> draw(x0.size());
  noise(draw);
  std::vector<float> target = x0;
  if (i > 0 && t - stride_ >= 0) {
    const double back = alpha(timesteps_[static_cast<size_t>(i - 1)]);
    const double r = (lambda(a) - lambda(back)) / h;
    const auto now = static_cast<float>(1 + (1 / (2 * r)));
    const auto before = static_cast<float>(1 / (2 * r));
    for (size_t n = 0; n < target.size(); ++n) {
      target[n] = (now * x0[n]) - (before * clean_[n]);
    }
    noise(draw);  // the reference draws again for the second order
  }
  for (size_t n = 0; n < target.size(); ++n) {
    latents[n] = (of_latents * latents[n]) - (of_clean * target[n]) + (of_noise * draw[n]);
  }
  clean_ = std::move(x0);
}

double guidance_weight(double guidance, bool dynamic, int64_t timestep, int64_t steps) {
  if (!dynamic) return guidance;
  const auto n = static_cast<double>(steps), t = static_cast<double>(timestep);
  return 1 + (guidance * ((1 - std::cos(std::numbers::pi * std::pow((n - t) / n, 5.0))) / 2));
}

std::vector<float> guided(std::span<const float> prompt, std::span<const float> negative,
                          double guidance) {
  std::vector<float> x(prompt.begin(), prompt.end());
  const auto weight = static_cast<float>(guidance);
  for (size_t i = 0; i < negative.size(); ++i) {
    x[i] = negative[i] + (weight * (prompt[i] - negative[i]));
  }
  return x;
}

}  // namespace braid
