#pragma once

#include <cstdint>
#include <vector>

#include "braid/io/media/rgb_image.h"

namespace braid {

// How luma weighs red, green and blue: bt709 for HD video and tagged files, bt601 for files without
// a tag.
enum class ColourMatrix : uint8_t { bt601, bt709 };

// A picture in 4:2:0, limited range (luma 16 to 235): chroma has half the rows and columns, rounded
// up, and lies on even columns, between rows, as MPEG-2 and H.264 have it.
struct YuvFrame {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> y;     // [height, width]
  std::vector<uint8_t> u, v;  // [chroma_height(), chroma_width()]

  int64_t chroma_height() const { return (height + 1) / 2; }
  int64_t chroma_width() const { return (width + 1) / 2; }
};

YuvFrame yuv_frame(const RgbImage& image, ColourMatrix matrix);

}  // namespace braid
