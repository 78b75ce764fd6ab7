#include "braid/io/media/png.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "unit/io/expect_error.h"

namespace braid {
namespace {

using test::expect_error;

RgbImage random_image(std::mt19937& random, int64_t height, int64_t width) {
  RgbImage image{height, width, std::vector<uint8_t>(static_cast<size_t>(height * width * 3))};
  const bool smooth = random() % 2 == 0;  // the encoder then chooses other filters
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    image.pixels[i] = static_cast<uint8_t>(smooth ? i / 7 : random());
  }
  return image;
}

uint32_t crc32(const std::vector<uint8_t>& bytes) {
  uint32_t crc = ~0u;
  for (const uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

std::string output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  std::array<char, 4096> block;
  while (const size_t n = std::fread(block.data(), 1, block.size(), pipe))
    text.append(block.data(), n);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return text;
}

const PngTexts kTexts = {{"parameters", "a big red circle\nSteps: 28, Seed: 7, \"quoted\" \\"},
                         {"prompt", "caf\u00e9 \u6f22\u5b57"},
                         {"empty", ""}};

// Python's zlib and a decoder of its own see the same pixels and texts.
TEST(Png, AnotherDecoderSeesTheSame) {
  std::mt19937 random(testing::UnitTest::GetInstance()->random_seed());
  const auto path = std::filesystem::temp_directory_path() / fmt::format("braid_png_{}", getpid());
  for (const auto& [height, width] : {std::pair(1, 1), {1, 50}, {37, 3}, {64, 65}, {120, 96}}) {
    const RgbImage image = random_image(random, height, width);
    std::ofstream(path, std::ios::binary) << encode_png(image, kTexts);
    std::string expected = fmt::format("{} {} {}\n", width, height, crc32(image.pixels));
    for (const auto& [key, text] : kTexts) {
      expected += key + " " + nlohmann::json(text).dump(-1, ' ', true) + "\n";
    }
    EXPECT_EQ(output_of("python3 " BRAID_TEST_DATA "/unit/io_media/read_png.py " + path.string()),
              expected);
  }
  std::filesystem::remove(path);
}

TEST(Png, ComesBack) {
  std::mt19937 random(testing::UnitTest::GetInstance()->random_seed());
  const RgbImage image = random_image(random, 33, 20);
  const std::string bytes = encode_png(image, kTexts);
  const PngFile file = decode_png(bytes, "x.png");
  EXPECT_EQ(file.image.height, 33);
  EXPECT_EQ(file.image.width, 20);
  EXPECT_EQ(file.image.pixels, image.pixels);
  EXPECT_EQ(file.texts, kTexts);
}

TEST(Png, RefusesBrokenBytes) {
  std::mt19937 random(testing::UnitTest::GetInstance()->random_seed());
  const std::string bytes = encode_png(random_image(random, 9, 9), kTexts);
  for (size_t size = 0; size < bytes.size(); size += 5) {
    expect_error(ErrorCode::kMalformed, {"x.png"},
                 [&] { decode_png(std::string_view(bytes).substr(0, size), "x.png"); });
  }
  for (int round = 0; round < 200; ++round) {  // refused or read, never worse
    std::string broken = bytes;
    broken[random() % broken.size()] = static_cast<char>(random());
    try {
      decode_png(broken, "x.png");
    } catch (const Error&) {
    }
  }
}

TEST(Png, RefusesWhatAFileCannotHold) {
  const RgbImage image{1, 1, {1, 2, 3}};
  expect_error(ErrorCode::kInvalidArgument, {"0x1"}, [] { encode_png({1, 0, {}}); });
  expect_error(ErrorCode::kInvalidArgument, {"keyword of 0"}, [&] {
    encode_png(image, {{"", "x"}});
  });
  expect_error(ErrorCode::kInvalidArgument, {"keyword of 80"}, [&] {
    encode_png(image, {{std::string(80, 'k'), "x"}});
  });
  expect_error(ErrorCode::kInvalidArgument, {"printable"}, [&] {
    encode_png(image, {{"\u00e9", "x"}});
  });
  expect_error(ErrorCode::kInvalidArgument, {"NUL"}, [&] {
    encode_png(image, {{"k", std::string(1, '\0')}});
  });
}

// The values of numpy's (x / 2 + 0.5).clip(0, 1) * 255, rounded, in f32.
TEST(RgbImage, RoundsAsDiffusers) {
  const std::vector<float> values = {-2, -1, 0, 1, 7, 0.25f, -0.0039216f, 0.0039215f, 0.5f};
  EXPECT_EQ(rgb_image(values, 1, 3).pixels,
            std::vector<uint8_t>({0, 0, 128, 255, 255, 159, 127, 128, 191}));
  expect_error(ErrorCode::kInvalidArgument, {"column 1, row 0"}, [] {
    rgb_image(std::vector<float>{0, 0, 0, 0, std::numeric_limits<float>::quiet_NaN(), 0}, 1, 2);
  });
}

}  // namespace
}  // namespace braid
