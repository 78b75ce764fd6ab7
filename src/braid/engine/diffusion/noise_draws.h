#pragma once

#include <deque>
#include <future>
#include <utility>
#include <vector>

#include "braid/engine/diffusion/latents.h"
#include "braid/engine/diffusion/torch_generator.h"

namespace braid {

// A video's noise, draw by draw. For a sampler that draws in each step, a step's two draws are made
// while its prediction is computed.
class NoiseDraws {
 public:
  // `type`: of the noise, as of TorchGenerator. A generator that draws for several `videos` at once
  // gives this video its part of each draw.
  NoiseDraws(uint64_t seed, const LatentShape& shape, DType type, int64_t videos = 1,
             int64_t video = 0)
      : generator_(seed, type), shape_(shape), videos_(videos), video_(video) {}

  // Tokens [Lv, token_dim].
  std::vector<float> next() {
    ++taken_;
    if (ready_.empty() && ahead_.valid()) {
      for (auto& noise : ahead_.get()) ready_.push_back(std::move(noise));
    }
    if (ready_.empty()) return draw();
    std::vector<float> noise = std::move(ready_.front());
    ready_.pop_front();
    return noise;
  }

  // Begins the next two draws, if draws have followed the first.
  void draw_ahead() {
    if (taken_ < 2 || ahead_.valid() || !ready_.empty()) return;
    ahead_ = std::async(std::launch::async, [this] { return std::vector{draw(), draw()}; });
  }

 private:
  std::vector<float> draw() {
    const auto n = static_cast<size_t>(shape_.elems());
    std::vector<float> noise(n * static_cast<size_t>(videos_));
    generator_.normals(noise);
    return tokens_of_noise(shape_, std::span(noise).subspan(n * static_cast<size_t>(video_), n));
  }

  TorchGenerator generator_;
  const LatentShape shape_;
  const int64_t videos_, video_;
  int64_t taken_ = 0;
  std::deque<std::vector<float>> ready_;
  std::future<std::vector<std::vector<float>>> ahead_;  // waited for at its end
};

}  // namespace braid
