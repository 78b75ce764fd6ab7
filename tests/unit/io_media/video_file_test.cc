#include "braid/io/media/video_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "braid/base/error.h"
#include "braid/io/media/yuv_frame.h"
#include "unit/io_media/smooth.h"

namespace braid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<RgbImage> clip(int64_t width, int64_t height, int64_t frames) {
  std::vector<RgbImage> all;
  for (int64_t t = 0; t < frames; ++t) all.push_back(smooth(width, height, t));
  return all;
}

std::vector<uint8_t> yuv(std::vector<uint8_t> rgb, ColourMatrix matrix) {
  const YuvFrame f = yuv_frame({1, 1, std::move(rgb)}, matrix);
  return {f.y[0], f.u[0], f.v[0]};
}

// Values of the standards' tables.
TEST(YuvFrame, PureColours) {
  const auto old = ColourMatrix::bt601, hd = ColourMatrix::bt709;
  EXPECT_THAT(yuv({255, 0, 0}, hd), ElementsAre(63, 102, 240));
  EXPECT_THAT(yuv({0, 255, 0}, hd), ElementsAre(173, 42, 26));
  EXPECT_THAT(yuv({0, 0, 255}, hd), ElementsAre(32, 240, 118));
  EXPECT_THAT(yuv({255, 0, 0}, old), ElementsAre(81, 90, 240));
  EXPECT_THAT(yuv({0, 255, 0}, old), ElementsAre(145, 54, 34));
  EXPECT_THAT(yuv({0, 0, 255}, old), ElementsAre(41, 240, 110));
  for (const auto matrix : {old, hd}) {
    EXPECT_THAT(yuv({0, 0, 0}, matrix), ElementsAre(16, 128, 128));
    EXPECT_THAT(yuv({255, 255, 255}, matrix), ElementsAre(235, 128, 128));
  }
}

TEST(YuvFrame, OddSides) {
  const YuvFrame f = yuv_frame(smooth(5, 3, 0), ColourMatrix::bt709);
  EXPECT_EQ(f.y.size(), 15u);
  EXPECT_EQ(f.u.size(), 6u);
  EXPECT_EQ(f.v.size(), 6u);
}

TEST(VideoFile, Y4mHoldsThePlanes) {
  const auto frames = clip(6, 4, 3);
  const std::string bytes = encode_video(frames, VideoFormat::y4m, {.fps = 25});
  const size_t line = bytes.find('\n');
  EXPECT_THAT(bytes.substr(0, line), HasSubstr("YUV4MPEG2 W6 H4 F25:1 "));
  ASSERT_EQ(bytes.size(), line + 1 + (3 * (6 + 24 + 12)));
  const YuvFrame last = yuv_frame(frames[2], ColourMatrix::bt601);
  EXPECT_EQ(bytes.substr(bytes.size() - 6), std::string(last.v.begin(), last.v.end()));
}

// The file through ffmpeg, which reads the tags and converts the colours back.
class VideoReopened : public testing::TestWithParam<const char*> {};

TEST_P(VideoReopened, GivesTheFramesBack) {
  const std::string name = GetParam();
  const VideoFormat format = video_format("a." + name);
  if (format != VideoFormat::y4m && !has_video_codecs()) GTEST_SKIP() << "built without libavcodec";
  if (output_of("ffmpeg -version").empty()) GTEST_SKIP() << "ffmpeg is not installed";
  const std::string path =
      std::filesystem::temp_directory_path() / fmt::format("braid_video_{}.{}", getpid(), name);
  for (const auto& [width, height, count] : {std::tuple{176, 96, 9}, {32, 48, 1}, {16, 16, 17}}) {
    SCOPED_TRACE(fmt::format("{} x {} x {}", width, height, count));
    const auto frames = clip(width, height, count);
    std::ofstream(path, std::ios::binary)
        << encode_video(frames, format, {.fps = 8, .comment = "{\"prompt\":\"a cat\"}"});
    const std::string got = output_of("ffmpeg -v error -i " + path +
                                      " -f rawvideo -pix_fmt rgb24 -sws_flags "
                                      "accurate_rnd+full_chroma_int -");
    expect_near(got, frames, 38);
    const std::string facts = output_of(
        "ffprobe -v error -count_frames -show_entries stream=nb_read_frames,avg_frame_rate,"
        "color_range,color_space,color_primaries,color_transfer:format_tags=comment,COMMENT -of "
        "default=nw=1 " +
        path);
    EXPECT_THAT(facts, HasSubstr(fmt::format("nb_read_frames={}", count)));
    if (count > 1) {
      EXPECT_THAT(facts, HasSubstr("avg_frame_rate=8/1"));
    }
    if (format == VideoFormat::y4m) continue;
    EXPECT_THAT(facts, HasSubstr("color_range=tv"));
    for (const char* tag : {"color_space", "color_primaries", "color_transfer"}) {
      EXPECT_THAT(facts, HasSubstr(fmt::format("{}=bt709", tag)));
    }
    EXPECT_THAT(facts, HasSubstr("{\"prompt\":\"a cat\"}"));
  }
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(Formats, VideoReopened, testing::Values("mp4", "webm", "y4m"),
                         [](const auto& info) { return std::string(info.param); });

TEST(VideoFile, Mistakes) {
  const auto refused = [](auto&& fn) -> std::string {
    try {
      fn();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(refused([] { video_format("a.avi"); }), HasSubstr("wanted is .mp4, .webm or .y4m"));
  EXPECT_THAT(refused([] { encode_video({}, VideoFormat::y4m, {}); }), HasSubstr("without"));
  const auto frames = clip(4, 4, 1);
  EXPECT_THAT(refused([&] { encode_video(frames, VideoFormat::y4m, {.fps = 0}); }),
              HasSubstr("0 frames a second"));
  const auto odd = clip(5, 4, 1);
  const std::string message = refused([&] { encode_video(odd, VideoFormat::mp4, {}); });
  EXPECT_THAT(message, HasSubstr(has_video_codecs() ? "5 x 4: even sides" : "libavformat-dev"));
}

}  // namespace
}  // namespace braid
