#include "braid/io/media/rgb_image.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "braid/base/error.h"

namespace braid {

RgbImage rgb_image(std::span<const float> values, int64_t height, int64_t width) {
  BRAID_CHECK(static_cast<int64_t>(values.size()) == height * width * 3, "{} values for {}x{}",
              values.size(), width, height);
  RgbImage image{height, width, std::vector<uint8_t>(values.size())};
  // By integers, which the compiler turns into vectors: floats from 0 on are ordered as their bits.
  constexpr int32_t kOne = 0x3f800000, kInfinity = 0x7f800000;
  const float* in = values.data();
  uint8_t* __restrict out = image.pixels.data();
  const auto n = static_cast<int64_t>(values.size());
  int32_t largest = 0;  // magnitude's bits: a NaN has more than infinity
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::bit_cast<int32_t>(in[i]) & 0x7fffffff);
    const auto bits = std::bit_cast<int32_t>((in[i] * 0.5f) + 0.5f);
    const auto unit = std::bit_cast<float>(std::clamp(bits, 0, kOne));
    // From 2^23 on floats are whole numbers: the sum rounds, halves to even.
    out[i] = static_cast<uint8_t>(std::bit_cast<uint32_t>((unit * 255.0f) + 0x1p23f));
  }
  if (largest > kInfinity) {
    const auto nan = std::ranges::find_if(values, [](float x) { return std::isnan(x); });
    const int64_t pixel = (nan - values.begin()) / 3;
    fail(ErrorCode::kInvalidArgument, "the pixel at column {}, row {} is not a number",
         pixel % width, pixel / width);
  }
  return image;
}

}  // namespace braid
