#include "braid/io/media/rgb_image.h"

#include <algorithm>
#include <cmath>

#include "braid/base/error.h"

namespace braid {

RgbImage rgb_image(std::span<const float> values, int64_t height, int64_t width) {
  BRAID_CHECK(static_cast<int64_t>(values.size()) == height * width * 3, "{} values for {}x{}",
              values.size(), width, height);
  RgbImage image{height, width, std::vector<uint8_t>(values.size())};
  for (size_t i = 0; i < values.size(); ++i) {
    const float x = values[i];
    if (std::isnan(x)) {
      const auto pixel = static_cast<int64_t>(i) / 3;
      fail(ErrorCode::kInvalidArgument, "the pixel at column {}, row {} is not a number",
           pixel % width, pixel / width);
    }
    const float unit = std::clamp((x * 0.5f) + 0.5f, 0.0f, 1.0f);
    image.pixels[i] = static_cast<uint8_t>(std::nearbyint(unit * 255.0f));
  }
  return image;
}

}  // namespace braid
