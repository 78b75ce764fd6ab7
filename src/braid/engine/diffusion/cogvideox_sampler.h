#pragma once

#include <functional>
#include <span>
#include <vector>

#include "braid/io/json_object.h"

namespace braid {

// CogVideoX's samplers: DDIM (CogVideoXDDIMScheduler) and a stochastic second-order solver
// (CogVideoXDPMScheduler). Factors are f64, latents f32, in diffusers' order.
struct CogVideoXSamplerConfig {
  enum class Method : uint8_t { ddim, dpm };
  enum class Prediction : uint8_t { epsilon, sample, velocity };
  enum class Spacing : uint8_t { leading, linspace, trailing };

  Method method = Method::ddim;
  int64_t train_timesteps = 1000;
  double beta_start = 0.00085, beta_end = 0.012;
  double snr_shift = 3;
  bool zero_snr = false;  // the last training step is noise alone
  bool final_one = true;  // the cumulative alpha behind the last step: 1, or training's first
  Prediction prediction = Prediction::epsilon;
  Spacing spacing = Spacing::leading;
  int64_t steps_offset = 0;
};

// Reads scheduler_config.json. Fails with kUnsupported on another class, and on options beyond
// Braid, by name.
CogVideoXSamplerConfig read_cogvideox_sampler_config(const JsonObject& config);

// A job's sampler.
class CogVideoXSampler {
 public:
  // Fails with kInvalidArgument on more steps than training had.
  CogVideoXSampler(const CogVideoXSamplerConfig& config, int64_t steps);

  const std::vector<int64_t>& timesteps() const { return timesteps_; }  // [steps]

  // Latents after step i, in place; steps come in order, and i = 0 begins anew. `noise` fills a
  // draw of as many normals; DPM draws once or twice a step.
  void step(int64_t i, std::span<const float> prediction, std::span<float> latents,
            const std::function<void(std::span<float>)>& noise);

 private:
  double alpha(int64_t timestep) const;
  std::vector<float> clean(double a, std::span<const float> prediction,
                           std::span<const float> latents) const;

  CogVideoXSamplerConfig config_;
  std::vector<int64_t> timesteps_;
  int64_t stride_ = 1;          // from a timestep to the one before
  std::vector<double> alphas_;  // [train_timesteps], cumulative
  std::vector<float> clean_;    // the clean latents that the last step predicted
};

// The weight of guidance at a step; with `dynamic` the weight grows from 1, as in diffusers.
double guidance_weight(double guidance, bool dynamic, int64_t timestep, int64_t steps);

// negative + guidance * (prompt - negative); without a negative pass the prompt's prediction.
std::vector<float> guided(std::span<const float> prompt, std::span<const float> negative,
                          double guidance);

}  // namespace braid
