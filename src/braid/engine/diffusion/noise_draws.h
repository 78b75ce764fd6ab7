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
  // `type`: of the noise, as of TorchGenerator.
  NoiseDraws(uint64_t seed, const LatentShape& shape, DType type)
      : generator_(seed, type), shape_(shape) {}

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
    std::vector<float> noise(static_cast<size_t>(shape_.elems()));
    generator_.normals(noise);
    return tokens_of_noise(shape_, noise);
  }

  TorchGenerator generator_;
  const LatentShape shape_;
  int64_t taken_ = 0;
  std::deque<std::vector<float>> ready_;
  std::future<std::vector<std::vector<float>>> ahead_;  // waited for at its end
};

}  // namespace braid
