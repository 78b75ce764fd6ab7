#include <webp/encode.h>

#include <memory>

#include "braid/base/error.h"
#include "braid/io/media/loaded_library.h"
#include "braid/io/media/lossy.h"

namespace braid {
namespace {

struct Webp {
  static const Webp& get() {
    static const Webp functions;
    return functions;
  }

  decltype(&::WebPEncodeRGB) encode = nullptr;
  decltype(&::WebPFree) free = nullptr;

 private:
  Webp() {
    const LoadedLibrary library("libwebp.so.7", "libwebp7", "WebP files", ".png");
    library.take(encode, "WebPEncodeRGB");
    library.take(free, "WebPFree");
  }
};

}  // namespace

void require_webp() {
  Webp::get();
}

std::string encode_webp(const RgbImage& image, int quality) {
  static_assert(kMaxWebpSide == WEBP_MAX_DIMENSION);
  const Webp& library = Webp::get();
  uint8_t* bytes = nullptr;
  const size_t size = library.encode(
      image.pixels.data(), static_cast<int>(image.width), static_cast<int>(image.height),
      static_cast<int>(image.width * 3), static_cast<float>(quality), &bytes);
  const std::unique_ptr<uint8_t, decltype(library.free)> owner(bytes, library.free);
  if (size == 0) {
    fail(ErrorCode::kResource, "libwebp cannot write a picture of {}x{}", image.width,
         image.height);
  }
  return {reinterpret_cast<const char*>(bytes), size};
}

}  // namespace braid
