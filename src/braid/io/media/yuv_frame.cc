#include "braid/io/media/yuv_frame.h"

#include <algorithm>
#include <cmath>

namespace braid {
namespace {

uint8_t rounded(float value) {
  return static_cast<uint8_t>(std::clamp(std::nearbyint(value), 0.0f, 255.0f));
}

}  // namespace

YuvFrame yuv_frame(const RgbImage& image, ColourMatrix matrix) {
  const float r = matrix == ColourMatrix::bt709 ? 0.2126f : 0.299f;
  const float b = matrix == ColourMatrix::bt709 ? 0.0722f : 0.114f;
  const int64_t H = image.height, W = image.width;
  YuvFrame frame{.height = H, .width = W, .y = {}, .u = {}, .v = {}};
  frame.y.resize(static_cast<size_t>(H * W));
  // Differences to blue and red of all pixels, from -0.5 to 0.5.
  std::vector<float> blue(frame.y.size()), red(frame.y.size());
  for (size_t i = 0; i < frame.y.size(); ++i) {
    const uint8_t* p = image.pixels.data() + (3 * i);
    const float R = static_cast<float>(p[0]) / 255, G = static_cast<float>(p[1]) / 255,
                B = static_cast<float>(p[2]) / 255;
    const float luma = (r * R) + ((1 - r - b) * G) + (b * B);
    frame.y[i] = rounded(16 + (219 * luma));
    blue[i] = (B - luma) / (2 * (1 - b));
    red[i] = (R - luma) / (2 * (1 - r));
  }
  const auto shrink = [&](const std::vector<float>& from, std::vector<uint8_t>& to) {
    const auto at = [&](int64_t y, int64_t x) {
      return from[static_cast<size_t>((std::min(y, H - 1) * W) + std::clamp<int64_t>(x, 0, W - 1))];
    };
    for (int64_t y = 0; y < H; y += 2) {
      for (int64_t x = 0; x < W; x += 2) {
        float sum = 0;
        for (int64_t row : {y, y + 1}) {
          sum += at(row, x - 1) + (2 * at(row, x)) + at(row, x + 1);
        }
        to.push_back(rounded(128 + (224 * sum / 8)));
      }
    }
  };
  shrink(blue, frame.u);
  shrink(red, frame.v);
  return frame;
}

}  // namespace braid
