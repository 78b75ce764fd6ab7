#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "braid/io/media/rgb_image.h"

// Pictures for tests of files, and what another program reads out of such a file.
namespace braid {

// A smooth picture that moves and changes colour.
inline RgbImage smooth(int64_t width, int64_t height, int64_t t) {
  RgbImage image{height, width, {}};
  const auto wave = [&](double x) {
    return static_cast<uint8_t>(128 + (100 * std::sin(x + (0.3 * static_cast<double>(t)))));
  };
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const auto fx = static_cast<double>(x), fy = static_cast<double>(y);
      for (double v : {fx / 20, fy / 17, (fx + fy) / 31}) image.pixels.push_back(wave(v));
    }
  }
  return image;
}

// What a command prints.
inline std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  char buffer[1 << 16];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
  pclose(pipe);
  return out;
}

// `got` holds the frames' values, [frames, H, W, 3]: at least `least_db` apart as PSNR, the mean of
// each colour within 2.
inline void expect_near(const std::string& got, const std::vector<RgbImage>& frames,
                        double least_db) {
  size_t wanted = 0;
  for (const RgbImage& frame : frames) wanted += frame.pixels.size();
  ASSERT_EQ(got.size(), wanted);
  double squares = 0;
  std::array<double, 3> off = {};  // sums of got - want
  size_t i = 0;
  for (const RgbImage& frame : frames) {
    for (uint8_t want : frame.pixels) {
      const double d = static_cast<double>(static_cast<uint8_t>(got[i])) - want;
      squares += d * d;
      off[i++ % 3] += d;
    }
  }
  const auto n = static_cast<double>(got.size());
  EXPECT_GT(10 * std::log10(255 * 255 / std::max(squares / n, 1e-9)), least_db);
  for (double sum : off) EXPECT_NEAR(3 * sum / n, 0, 2);
}

}  // namespace braid
