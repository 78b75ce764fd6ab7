#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace braid {

// A latent picture or video: F frames of C channels of h x w; sides are even, and F a multiple of
// patch_frames. Noise is drawn in the order [F, C, h, w]; a transformer reads tokens, [F /
// patch_frames * h/2 * w/2, C * patch_frames * 4] with the channel slowest; a decoder reads pixels,
// [F * h * w, C]. These are moves alone.
struct LatentShape {
  int64_t channels = 16;
  int64_t height = 0;
  int64_t width = 0;
  int64_t frames = 1;
  int64_t patch_frames = 1;  // of a token

  int64_t elems() const { return frames * channels * height * width; }
  int64_t token_frames() const { return frames / patch_frames; }
  int64_t token_rows() const { return height / 2; }
  int64_t token_columns() const { return width / 2; }
  int64_t tokens() const { return token_frames() * token_rows() * token_columns(); }
  bool operator==(const LatentShape&) const = default;
};

std::vector<float> tokens_of_noise(const LatentShape& shape, std::span<const float> noise);
std::vector<float> pixels_of_tokens(const LatentShape& shape, std::span<const float> tokens);

}  // namespace braid
