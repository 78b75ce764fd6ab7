// Builds without libavcodec: MP4 and WebM are refused.
#include "braid/base/error.h"
#include "braid/io/media/video_file.h"

namespace braid {

bool has_video_codecs() {
  return false;
}

void require_codec(VideoFormat format) {
  fail(ErrorCode::kUnsupported,
       "this build writes no {}: install libavformat-dev (Debian, Ubuntu; scripts/setup.sh media) "
       "and build again, or name the file .y4m or .png",
       format == VideoFormat::mp4 ? "MP4" : "WebM");
}

std::string encode_with_codec(std::span<const RgbImage> /*frames*/, VideoFormat format,
                              const VideoSettings& /*settings*/) {
  require_codec(format);
  return {};
}

}  // namespace braid
