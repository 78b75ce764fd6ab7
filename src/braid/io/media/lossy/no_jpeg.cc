// Builds without JPEG files.
#include "braid/base/error.h"
#include "braid/io/media/lossy.h"

namespace braid {

void require_jpeg() {
  fail(ErrorCode::kUnsupported,
       "this build writes no JPEG: install libjpeg-dev (Debian, Ubuntu; scripts/setup.sh media) "
       "and build "
       "again, or name the file .png");
}

std::string encode_jpeg(const RgbImage& /*image*/, int /*quality*/, std::string_view /*comment*/) {
  require_jpeg();
  return {};
}

}  // namespace braid
