#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace braid {

// A picture in 8 bits a channel, sRGB.
struct RgbImage {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;  // [H, W, 3]
};

// The picture of decoded values: `values` f32 [H, W, 3], -1 black, 1 full. As diffusers computes in
// f32: x / 2 + 0.5 cut to 0 .. 1, times 255, rounded to the nearest, halves to even. Fails with
// kInvalidArgument on a value that is not a number.
RgbImage rgb_image(std::span<const float> values, int64_t height, int64_t width);

}  // namespace braid
