#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "braid/io/media/rgb_image.h"

namespace braid {

// Text in a picture's file, from a program ("parameters", "Software"). The keyword
// is ASCII, the text UTF-8.
using PngTexts = std::vector<std::pair<std::string, std::string>>;

// The bytes of a PNG file: 8-bit RGB, sRGB, the texts in front of the pixels. Fails with
// kInvalidArgument on a keyword that is empty, over 79 bytes or not printable ASCII, on a text with
// a NUL byte, on a picture without pixels or with sides over 1,000,000.
std::string encode_png(const RgbImage& image, const PngTexts& texts = {});

// A PNG file's picture, of any colour type (alpha is dropped), and its texts. Fails with
// kMalformed, naming `name`, if libpng refuses the bytes or the bytes end early.
struct PngFile {
  RgbImage image;
  PngTexts texts;
};
PngFile decode_png(std::string_view bytes, std::string_view name);

}  // namespace braid
