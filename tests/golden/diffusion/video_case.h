#pragma once

#include "braid/engine/diffusion/cogvideox_pipeline.h"
#include "golden/diffusion/case.h"
#include "golden/diffusion/differences.h"

namespace braid::golden {

// One run of diffusers on a video pipeline of tools/make_tiny_pipeline.py: video_cases.json, and
// the tensors of <name>.safetensors (tests/golden/README.md).
struct VideoCase {
  std::string name;
  std::string kind;  // of the pipeline
  VideoRequest request;
};

inline std::vector<VideoCase> video_cases() {
  std::vector<VideoCase> cases;
  const nlohmann::json all = diffusion_json("video_cases.json");
  for (const auto& j : all) {
    cases.push_back({.name = j.at("name"),
                     .kind = j.at("kind"),
                     .request = {.prompt = j.at("prompt"),
                                 .negative = j.at("negative"),
                                 .width = j.at("width"),
                                 .height = j.at("height"),
                                 .frames = j.at("frames"),
                                 .steps = j.at("steps"),
                                 .guidance = j.at("guidance"),
                                 .dynamic_guidance = j.at("dynamic"),
                                 .text_tokens = j.at("text"),
                                 .seed = j.at("seed"),
                                 .videos = j.value("videos", 1),
                                 .one_generator = j.value("batch", false)}});
  }
  return cases;
}

// Latents of all steps and pictures of a request's videos, one after another.
struct MadeVideo {
  std::vector<float> latents;
  std::vector<RgbImage> frames;
};

inline MadeVideo make_video(CogVideoXPipeline& pipeline, VideoRequest request) {
  MadeVideo made;
  request.on_latents = [&](int64_t, int64_t step, std::span<const float> latents) {
    if (step > 0) made.latents.insert(made.latents.end(), latents.begin(), latents.end());
  };
  request.on_video = [&](int64_t, const std::vector<RgbImage>& frames) {
    made.frames.insert(made.frames.end(), frames.begin(), frames.end());
  };
  pipeline.generate(request);
  return made;
}

// The largest difference of 8-bit pixels [frames, H, W, 3]; 256 for another number of them.
inline int worst_pixel(const MadeVideo& made, std::span<const int32_t> want) {
  std::vector<int> got;
  for (const RgbImage& frame : made.frames) {
    got.insert(got.end(), frame.pixels.begin(), frame.pixels.end());
  }
  if (got.size() != want.size()) return 256;
  int most = 0;
  for (size_t i = 0; i < got.size(); ++i) most = std::max(most, std::abs(got[i] - want[i]));
  return most;
}

}  // namespace braid::golden
