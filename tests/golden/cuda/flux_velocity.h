#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "braid/engine/diffusion/flux_transformer.h"
#include "golden/diffusion/case.h"
#include "golden/diffusion/differences.h"

namespace braid::golden {

// The largest error of a velocity over all steps, each from the latents that diffusers had.
inline double velocity_error(const DiffusionCase& c, FluxTransformer& transformer) {
  const SafetensorsFile golden(diffusion_golden(c.name + ".safetensors"));
  const auto sigmas = tensor<float>(golden, "sigmas"), text = tensor<float>(golden, "text"),
             pooled = tensor<float>(golden, "pooled"), steps = tensor<float>(golden, "latents");
  const int64_t per_pixel = c.kind == "guided" ? 8 : 4;
  transformer.begin({.batch = c.batch(),
                     .token_rows = c.height / per_pixel,
                     .token_columns = c.width / per_pixel,
                     .text = text,
                     .pooled = pooled,
                     .sigmas = std::span(sigmas).first(static_cast<size_t>(c.steps)),
                     .guidance = c.guidance});
  std::vector<float> latents = tensor<float>(golden, "noise");
  double worst = 0;
  for (int64_t i = 0; i < c.steps; ++i) {
    const auto at = static_cast<size_t>(i);
    const auto next = std::span(steps).subspan(at * latents.size(), latents.size());
    std::vector<float> want(latents.size());
    for (size_t j = 0; j < want.size(); ++j) {
      want[j] = (next[j] - latents[j]) / (sigmas[at + 1] - sigmas[at]);
    }
    // Twice: as single launches, and as a graph.
    for (int run = 0; run < 2; ++run) {
      worst = std::max(worst, relative_rms(transformer.velocity(i, latents), want));
    }
    latents.assign(next.begin(), next.end());
  }
  return worst;
}

}  // namespace braid::golden
