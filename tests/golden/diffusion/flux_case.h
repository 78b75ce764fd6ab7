#pragma once

#include <algorithm>
#include <cstdlib>

#include "braid/engine/diffusion/flux_pipeline.h"
#include "golden/diffusion/case.h"
#include "golden/diffusion/differences.h"

namespace braid::golden {

// A prompt's latents of all steps, one after another, and its picture.
struct MadePicture {
  std::vector<float> latents;
  RgbImage image;
  ImageResult result;
};

inline MadePicture make_picture(FluxPipeline& pipeline, const DiffusionCase& c, size_t prompt) {
  MadePicture made;
  ImageRequest request{.prompt = c.prompts[prompt],
                       .width = c.width,
                       .height = c.height,
                       .steps = c.steps,
                       .guidance = c.guidance,
                       .text_tokens = c.text,
                       .seed = c.seeds[prompt]};
  request.on_latents = [&](int64_t, int64_t step, std::span<const float> latents) {
    if (step > 0) made.latents.insert(made.latents.end(), latents.begin(), latents.end());
  };
  request.on_image = [&](int64_t, const RgbImage& image) { made.image = image; };
  made.result = pipeline.generate(request);
  return made;
}

// The same from diffusers, which draws all prompts of a case at once.
struct GoldenPicture {
  std::vector<float> latents;
  std::vector<int32_t> pixels;  // [H, W, 3]

  GoldenPicture(const DiffusionCase& c, size_t prompt) {
    const SafetensorsFile file(diffusion_golden(c.name + ".safetensors"));
    const auto all = tensor<float>(file, "latents");  // [steps, prompts, ...]
    const auto batch = static_cast<size_t>(c.batch()), steps = static_cast<size_t>(c.steps);
    const size_t values = all.size() / steps / batch;
    for (size_t step = 0; step < steps; ++step) {
      const auto* from = all.data() + (step * batch + prompt) * values;
      latents.insert(latents.end(), from, from + values);
    }
    const auto rows = tensor<int32_t>(file, "pixels");
    const size_t picture = rows.size() / batch;
    pixels.assign(rows.data() + prompt * picture, rows.data() + (prompt + 1) * picture);
  }
};

// The largest difference of 8-bit pixels; 256 for another number of them.
inline int worst_pixel(const RgbImage& image, std::span<const int32_t> want) {
  if (image.pixels.size() != want.size()) return 256;
  int most = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    most = std::max(most, std::abs(int{image.pixels[i]} - want[i]));
  }
  return most;
}

}  // namespace braid::golden
