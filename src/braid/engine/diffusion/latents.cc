#include "braid/engine/diffusion/latents.h"

#include "braid/base/error.h"

namespace braid {
namespace {

// Index of a pixel's channel among the tokens' values.
int64_t token_index(const LatentShape& s, int64_t frame, int64_t channel, int64_t y, int64_t x) {
  const int64_t p = s.patch_frames;
  const int64_t token = ((((frame / p) * s.token_rows()) + (y / 2)) * s.token_columns()) + (x / 2);
  return (((((token * s.channels) + channel) * p) + (frame % p)) * 4) + ((y % 2) * 2) + (x % 2);
}

// Calls move(to, frame, channel, y, x) for each value.
template <class F>
std::vector<float> moved(const LatentShape& s, std::span<const float> from, F&& move) {
  BRAID_CHECK(std::ssize(from) == s.elems() && s.height % 2 == 0 && s.width % 2 == 0 &&
                  s.frames % s.patch_frames == 0,
              "{} values of {} x {} x {} x {}", from.size(), s.frames, s.channels, s.height,
              s.width);
  std::vector<float> to(from.size());
  for (int64_t f = 0; f < s.frames; ++f) {
    for (int64_t c = 0; c < s.channels; ++c) {
      for (int64_t y = 0; y < s.height; ++y) {
        for (int64_t x = 0; x < s.width; ++x) move(to, f, c, y, x);
      }
    }
  }
  return to;
}

}  // namespace

std::vector<float> tokens_of_noise(const LatentShape& s, std::span<const float> noise) {
  size_t drawn = 0;
  return moved(s, noise, [&](std::vector<float>& to, int64_t f, int64_t c, int64_t y, int64_t x) {
    to[static_cast<size_t>(token_index(s, f, c, y, x))] = noise[drawn++];
  });
}

std::vector<float> pixels_of_tokens(const LatentShape& s, std::span<const float> tokens) {
  return moved(s, tokens, [&](std::vector<float>& to, int64_t f, int64_t c, int64_t y, int64_t x) {
    to[static_cast<size_t>((((((f * s.height) + y) * s.width) + x) * s.channels) + c)] =
        tokens[static_cast<size_t>(token_index(s, f, c, y, x))];
  });
}

}  // namespace braid
