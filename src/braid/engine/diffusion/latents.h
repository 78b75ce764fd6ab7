#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace braid {

// A latent picture: C channels of h x w, both even. Noise is drawn in the order [C, h, w]; a
// transformer reads tokens of 2 x 2 pixels, [h/2 * w/2, C * 4] with the channel slowest; a decoder
// reads pixels, [h * w, C]. These are moves alone.
struct LatentShape {
  int64_t channels = 16;
  int64_t height = 0;
  int64_t width = 0;

  int64_t elems() const { return channels * height * width; }
  int64_t token_rows() const { return height / 2; }
  int64_t token_columns() const { return width / 2; }
  int64_t tokens() const { return token_rows() * token_columns(); }
  bool operator==(const LatentShape&) const = default;
};

std::vector<float> tokens_of_noise(const LatentShape& shape, std::span<const float> noise);
std::vector<float> pixels_of_tokens(const LatentShape& shape, std::span<const float> tokens);

}  // namespace braid
