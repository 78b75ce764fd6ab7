#include "braid/io/media/picture_file.h"

#include "braid/base/error.h"
#include "braid/io/media/lossy.h"

namespace braid {

bool is_picture_name(std::string_view path) {
  for (const char* end : {".png", ".jpg", ".jpeg", ".webp"}) {
    if (path.ends_with(end)) return true;
  }
  return false;
}

PictureFormat picture_format(std::string_view path) {
  if (!is_picture_name(path)) {
    fail(ErrorCode::kInvalidArgument,
         "{}: no name of a picture, wanted is .png, .jpg, .jpeg or .webp", path);
  }
  if (path.ends_with(".png")) return PictureFormat::png;
  return path.ends_with(".webp") ? PictureFormat::webp : PictureFormat::jpeg;
}

void require_picture_format(PictureFormat format) {
  if (format == PictureFormat::jpeg) require_jpeg();
  if (format == PictureFormat::webp) require_webp();
}

void require_picture_sides(PictureFormat format, int64_t width, int64_t height) {
  if (format == PictureFormat::png) return;  // encode_png has its own limit
  const bool jpeg = format == PictureFormat::jpeg;
  const int64_t most = jpeg ? kMaxJpegSide : kMaxWebpSide;
  if (width > 0 && height > 0 && width <= most && height <= most) return;
  fail(ErrorCode::kInvalidArgument, "a {} file of {}x{} pixels, sides may be 1 to {}",
       jpeg ? "JPEG" : "WebP", width, height, most);
}

std::string encode_picture(const RgbImage& image, PictureFormat format,
                           const PictureSettings& settings) {
  if (format == PictureFormat::png) return encode_png(image, settings.texts);
  require_picture_format(format);
  require_picture_sides(format, image.width, image.height);
  if (settings.quality < 1 || settings.quality > 100) {
    fail(ErrorCode::kInvalidArgument, "quality {}, wanted is 1 to 100", settings.quality);
  }
  if (format == PictureFormat::webp) return encode_webp(image, settings.quality);
  return encode_jpeg(image, settings.quality,
                     settings.texts.empty() ? std::string_view() : settings.texts[0].second);
}

}  // namespace braid
