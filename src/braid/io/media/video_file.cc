#include "braid/io/media/video_file.h"

#include <fmt/format.h>

#include "braid/base/error.h"
#include "braid/io/media/yuv_frame.h"

namespace braid {
namespace {

std::string encode_y4m(std::span<const RgbImage> frames, int64_t fps) {
  std::string bytes = fmt::format("YUV4MPEG2 W{} H{} F{}:1 Ip A1:1 C420mpeg2 XCOLORRANGE=LIMITED\n",
                                  frames[0].width, frames[0].height, fps);
  for (const RgbImage& image : frames) {
    const YuvFrame frame = yuv_frame(image, ColourMatrix::bt601);
    bytes += "FRAME\n";
    for (const auto* plane : {&frame.y, &frame.u, &frame.v}) {
      bytes.append(plane->begin(), plane->end());
    }
  }
  return bytes;
}

}  // namespace

VideoFormat video_format(std::string_view path) {
  if (path.ends_with(".mp4")) return VideoFormat::mp4;
  if (path.ends_with(".webm")) return VideoFormat::webm;
  if (path.ends_with(".y4m")) return VideoFormat::y4m;
  fail(ErrorCode::kInvalidArgument, "{}: no name of a video, wanted is .mp4, .webm or .y4m", path);
}

void require_video_format(VideoFormat format) {
  if (format != VideoFormat::y4m) require_codec(format);
}

std::string encode_video(std::span<const RgbImage> frames, VideoFormat format,
                         const VideoSettings& settings) {
  if (frames.empty()) fail(ErrorCode::kInvalidArgument, "a video without pictures");
  for (const RgbImage& image : frames) {
    BRAID_CHECK(image.width == frames[0].width && image.height == frames[0].height,
                "pictures of {} x {} and {} x {} in a video", frames[0].width, frames[0].height,
                image.width, image.height);
  }
  if (settings.fps < 1 || settings.fps > 1000) {
    fail(ErrorCode::kInvalidArgument, "{} frames a second, wanted 1 to 1000", settings.fps);
  }
  if (format == VideoFormat::y4m) return encode_y4m(frames, settings.fps);
  return encode_with_codec(frames, format, settings);
}

}  // namespace braid
