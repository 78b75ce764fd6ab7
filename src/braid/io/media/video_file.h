#pragma once

#include <span>
#include <string>
#include <string_view>

#include "braid/io/media/rgb_image.h"

namespace braid {

// Files for videos. MP4 holds H.264, WebM VP9; both take the distribution's libavcodec, loaded at
// first need. Y4M is raw and needs no library.
enum class VideoFormat : uint8_t { mp4, webm, y4m };

// The format of a file's name: .mp4, .webm, .y4m. Fails with kInvalidArgument on others.
VideoFormat video_format(std::string_view path);

// Whether this build writes MP4 and WebM at all.
bool has_video_codecs();

// Fails with kUnsupported where a format's library or encoder is missing, and says what to install:
// a check before long work.
void require_video_format(VideoFormat format);

struct VideoSettings {
  int64_t fps = 8;
  std::string comment;  // text in the file; Y4M holds none
};

// The bytes of a video file: 8-bit 4:2:0 in limited range; MP4 and WebM are in BT.709 and say so,
// Y4M is in BT.601, which readers assume. All pictures have one size. Fails with kInvalidArgument
// without pictures, or with an odd side in MP4, and as require_video_format does.
std::string encode_video(std::span<const RgbImage> frames, VideoFormat format,
                         const VideoSettings& settings);

// MP4 and WebM alone, by libavcodec.
void require_codec(VideoFormat format);
std::string encode_with_codec(std::span<const RgbImage> frames, VideoFormat format,
                              const VideoSettings& settings);

}  // namespace braid
