#pragma once

#include <string>
#include <string_view>

#include "braid/io/media/rgb_image.h"

// JPEG by libjpeg and WebP by libwebp: encode_picture (picture_file.h) checks what comes here.
namespace braid {

// Fail with kUnsupported for a missing library, naming the package to install.
void require_jpeg();
void require_webp();

inline constexpr int64_t kMaxJpegSide = 65500, kMaxWebpSide = 16383;

// `quality` is 1 to 100; `comment` becomes comment segments of at most 65,533 bytes.
std::string encode_jpeg(const RgbImage& image, int quality, std::string_view comment);
std::string encode_webp(const RgbImage& image, int quality);

}  // namespace braid
