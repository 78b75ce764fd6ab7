#include "braid/io/media/picture_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "braid/base/error.h"
#include "braid/io/media/lossy.h"
#include "unit/io_media/smooth.h"

namespace braid {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

bool written(PictureFormat format) {
  return error_of([&] { require_picture_format(format); }) == "no error";
}

TEST(PictureFile, FormatsByName) {
  EXPECT_EQ(picture_format("a.png"), PictureFormat::png);
  EXPECT_EQ(picture_format("b/c.jpeg"), PictureFormat::jpeg);
  EXPECT_EQ(picture_format(".jpg"), PictureFormat::jpeg);
  EXPECT_EQ(picture_format("x.webp"), PictureFormat::webp);
  EXPECT_THAT(error_of([] { picture_format("a.gif"); }),
              HasSubstr("a.gif: no name of a picture, wanted is .png, .jpg, .jpeg or .webp"));
}

// The file through ffmpeg's own decoders.
class PictureReopened : public testing::TestWithParam<const char*> {};

TEST_P(PictureReopened, GivesThePictureBack) {
  const std::string name = fmt::format("a.{}", GetParam());
  const PictureFormat format = picture_format(name);
  if (!written(format)) GTEST_SKIP() << error_of([&] { require_picture_format(format); });
  if (output_of("ffmpeg -version").empty()) GTEST_SKIP() << "ffmpeg is not installed";
  const std::string path =
      std::filesystem::temp_directory_path() / fmt::format("braid_picture_{}{}", getpid(), name);
  const std::string settings(70000, 's');  // more than a segment of JPEG holds
  for (const auto& [width, height] : {std::pair{176, 96}, {33, 47}, {1, 1}, {17, 2}}) {
    SCOPED_TRACE(fmt::format("{} x {}", width, height));
    const RgbImage image = smooth(width, height, 3);
    const std::string bytes =
        encode_picture(image, format, {.texts = {{"parameters", settings}, {"Software", "x"}}});
    std::ofstream(path, std::ios::binary) << bytes;
    expect_near(output_of("ffmpeg -v error -i " + path +
                          " -f rawvideo -pix_fmt rgb24 -sws_flags accurate_rnd+full_chroma_int -"),
                {image}, format == PictureFormat::png ? 90 : 38);
    const std::string small = encode_picture(image, format, {.quality = 5, .texts = {}});
    if (format != PictureFormat::png) {
      EXPECT_LE(small.size() + (format == PictureFormat::jpeg ? 70000 : 0), bytes.size());
    }
    if (format == PictureFormat::jpeg) {
      EXPECT_THAT(bytes, HasSubstr(std::string(65533, 's')));
      EXPECT_THAT(small, Not(HasSubstr("sss")));
    }
  }
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(Formats, PictureReopened, testing::Values("png", "jpg", "webp"),
                         [](const auto& info) { return std::string(info.param); });

TEST(PictureFile, Mistakes) {
  const RgbImage image = smooth(8, 8, 0);
  for (const auto format : {PictureFormat::jpeg, PictureFormat::webp}) {
    if (!written(format)) continue;
    for (int quality : {0, 101}) {
      EXPECT_THAT(error_of([&] { encode_picture(image, format, {.quality = quality}); }),
                  HasSubstr(fmt::format("quality {}, wanted is 1 to 100", quality)));
    }
    EXPECT_THAT(error_of([&] { encode_picture({}, format); }), HasSubstr("of 0x0 pixels"));
  }
  EXPECT_THAT(
      error_of([] { require_picture_sides(PictureFormat::webp, 16384, 16); }),
      HasSubstr(fmt::format("a WebP file of 16384x16 pixels, sides may be 1 to {}", kMaxWebpSide)));
  EXPECT_THAT(error_of([] { require_picture_sides(PictureFormat::jpeg, 16, 65501); }),
              HasSubstr(fmt::format("1 to {}", kMaxJpegSide)));
}

}  // namespace
}  // namespace braid
