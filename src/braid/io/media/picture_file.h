#pragma once

#include <string>
#include <string_view>

#include "braid/io/media/png.h"
#include "braid/io/media/rgb_image.h"

namespace braid {

// Files for pictures: PNG keeps every value, JPEG and WebP are smaller. The libraries of the latter
// two are loaded at first need.
enum class PictureFormat : uint8_t { png, jpeg, webp };

// The format of a file's name: .png, .jpg, .jpeg, .webp. Fails with kInvalidArgument on others.
PictureFormat picture_format(std::string_view path);
bool is_picture_name(std::string_view path);

// Fails with kUnsupported where a format's library is missing, and says what to install: a check
// before long work.
void require_picture_format(PictureFormat format);
// Fails with kInvalidArgument on sides beyond the format's limit.
void require_picture_sides(PictureFormat format, int64_t width, int64_t height);

struct PictureSettings {
  int quality = 95;  // of JPEG and WebP, 1 to 100
  // Text in the file: PNG has all, JPEG the first as a comment, WebP none.
  PngTexts texts;
};

// The bytes of a file: 8-bit RGB, sRGB; JPEG and WebP with colours at half the resolution. Fails as
// the checks above and encode_png do, with kInvalidArgument on a quality out of range.
std::string encode_picture(const RgbImage& image, PictureFormat format,
                           const PictureSettings& settings = {});

}  // namespace braid
