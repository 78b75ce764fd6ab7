// Builds without WebP files.
#include "braid/base/error.h"
#include "braid/io/media/lossy.h"

namespace braid {

void require_webp() {
  fail(ErrorCode::kUnsupported,
       "this build writes no WebP: install libwebp-dev (Debian, Ubuntu; scripts/setup.sh media) "
       "and build "
       "again, or name the file .png");
}

std::string encode_webp(const RgbImage& /*image*/, int /*quality*/) {
  require_webp();
  return {};
}

}  // namespace braid
