#include "braid/engine/diffusion/latents.h"

#include "braid/base/error.h"

namespace braid {
namespace {

// Where the channel of a pixel stands among the tokens' values.
int64_t token_index(const LatentShape& s, int64_t channel, int64_t y, int64_t x) {
  const int64_t token = ((y / 2) * s.token_columns()) + (x / 2);
  return (((token * s.channels) + channel) * 4) + ((y % 2) * 2) + (x % 2);
}

// Calls fn(channel, y, x) for each value.
template <class F>
std::vector<float> moved(const LatentShape& s, std::span<const float> from, F&& move) {
  BRAID_CHECK(std::ssize(from) == s.elems() && s.height % 2 == 0 && s.width % 2 == 0,
              "{} values of {} x {} x {}", from.size(), s.channels, s.height, s.width);
  std::vector<float> to(from.size());
  for (int64_t c = 0; c < s.channels; ++c) {
    for (int64_t y = 0; y < s.height; ++y) {
      for (int64_t x = 0; x < s.width; ++x) move(to, c, y, x);
    }
  }
  return to;
}

}  // namespace

std::vector<float> tokens_of_noise(const LatentShape& s, std::span<const float> noise) {
  return moved(s, noise, [&](std::vector<float>& to, int64_t c, int64_t y, int64_t x) {
    to[static_cast<size_t>(token_index(s, c, y, x))] =
        noise[static_cast<size_t>((((c * s.height) + y) * s.width) + x)];
  });
}

std::vector<float> pixels_of_tokens(const LatentShape& s, std::span<const float> tokens) {
  return moved(s, tokens, [&](std::vector<float>& to, int64_t c, int64_t y, int64_t x) {
    to[static_cast<size_t>((((y * s.width) + x) * s.channels) + c)] =
        tokens[static_cast<size_t>(token_index(s, c, y, x))];
  });
}

}  // namespace braid
