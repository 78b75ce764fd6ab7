#include "braid/kernels/cuda/image/conv_config.h"

#include <gtest/gtest.h>

#include "braid/base/error.h"

namespace braid::cuda {
namespace {

TEST(ConvConfig, TensorCoresForWholeBlocksOfChannels) {
  const ops::Conv2dAttrs a{.height = 128, .width = 96, .padding = 1, .upsample = 2};
  const ConvDesc d = conv_desc(a, {DType::bf16, {128 * 96, 512}}, {DType::bf16, {256, 512, 3, 3}});
  EXPECT_EQ(to_string(d), "bf16 49152 x 256, 9 x 512");
  EXPECT_EQ(to_string(choose(d, {.compute_capability = 80})), "mma 128x128x64, 3 stages");
  EXPECT_EQ(to_string(choose(d, {})), "wgmma 256x128x64, 4 stages, patches 16 wide, pixels shared");
  ConvDesc other = d;
  other.channels = 16;
  EXPECT_EQ(to_string(choose(other, {})), "plain 64x64x16, 1 stages");
  other = d, other.dtype = DType::f32;
  EXPECT_EQ(choose(other, {}).kernel, ConvKernel::plain);
  other = d, other.stride = 2;
  EXPECT_EQ(choose(other, {}), choose(d, {.compute_capability = 80}));
  other = d, other.out = 3;
  EXPECT_EQ(to_string(choose(other, {})),
            "wgmma 256x64x64, 4 stages, patches 16 wide, channels shared");
}

// Pairs of CTAs share pixels where that leaves none without channels.
TEST(ConvConfig, PairsShare) {
  const std::pair<int64_t, bool> shares_pixels[] = {
      {64, false}, {128, false}, {129, true}, {256, true}, {320, false}, {384, false}, {512, true}};
  for (const auto& [out, wanted] : shares_pixels) {
    EXPECT_EQ(choose({.pixels = 256, .channels = 64, .out = out}, {}).shares_pixels, wanted) << out;
  }
}

// A rank's share of 128 x 128 latents: tiles of 128 channels would leave half of the device idle.
TEST(ConvConfig, NarrowTilesOfFewPixels) {
  ConvDesc d{.pixels = 32 * 128, .channels = 512, .out = 512, .height = 32, .width = 128};
  EXPECT_EQ(choose(d, {}).block_n, 64);
  EXPECT_TRUE(choose(d, {}).shares_pixels);
  EXPECT_EQ(choose(d, {.num_sms = 127}).block_n, 128);  // 16 patches x 8 tiles of 64 channels
  EXPECT_EQ(choose(d, {.num_sms = 128}).block_n, 64);
  d.pixels *= 2;  // two pictures
  EXPECT_EQ(choose(d, {}).block_n, 128);
  d = {.pixels = 64 * 256, .channels = 512, .out = 512, .height = 64, .width = 256, .upsample = 2};
  EXPECT_EQ(choose(d, {}).block_n, 128);
}

TEST(ConvConfig, FewestPatches) {
  struct Case {
    int64_t height, width, upsample;
    int wanted;
  };
  const Case cases[] = {{1024, 1024, 1, 16}, {1, 1, 1, 16},   {2, 128, 1, 128}, {4, 60, 1, 64},
                        {8, 31, 1, 32},      {32, 8, 1, 8},   {16, 8, 2, 16},   {64, 16, 2, 8},
                        {480, 720, 1, 16},   {60, 90, 1, 16}, {1, 500, 1, 128}};
  for (const Case& c : cases) {
    const ConvDesc d{.pixels = c.height * c.width,
                     .channels = 64,
                     .out = 64,
                     .height = c.height,
                     .width = c.width,
                     .upsample = c.upsample};
    EXPECT_EQ(choose(d, {}).patch_width, c.wanted) << c.height << " x " << c.width;
  }
}

TEST(ConvConfig, FramesArePictures) {
  const ValueType x{DType::bf16, {3 * 48 * 32, 256}};
  const ops::Conv2dAttrs a =
      frames_as_pictures({.height = 48, .width = 32, .padding = 1, .silu = true}, x.shape);
  EXPECT_EQ(a,
            (ops::Conv2dAttrs{.batch = 3, .height = 48, .width = 32, .padding = 1, .silu = true}));
  // Frames twice but for the first, in pictures of four times the pixels; every second row.
  const ops::Conv2dAttrs twice = frames_as_pictures(
      {.height = 48, .width = 32, .upsample = 2, .frame_upsample = 2, .first_once = true}, x.shape);
  EXPECT_EQ(twice, (ops::Conv2dAttrs{.batch = 5, .height = 48, .width = 32, .upsample = 2}));
  const ops::Conv2dAttrs half = frames_as_pictures(
      {.height = 48, .width = 32, .stride = 2, .padding = 1, .frame_stride = 2}, x.shape);
  EXPECT_EQ(half,
            (ops::Conv2dAttrs{.batch = 2, .height = 48, .width = 32, .stride = 2, .padding = 1}));
  EXPECT_EQ(choose(conv_desc(half, x, {DType::bf16, {128, 256, 3, 3, 3}}), {}).kernel,
            ConvKernel::mma);
  const ConvDesc d = conv_desc(a, x, {DType::bf16, {128, 256, 3, 3, 3}});
  EXPECT_EQ(to_string(d), "bf16 4608 x 128, 27 x 256");
  EXPECT_EQ(choose(d, {}).kernel, ConvKernel::wgmma);
}

TEST(ConvConfig, RefusesByName) {
  ConvDesc d{.pixels = 1, .channels = 8, .out = 8};
  d.dtype = DType::f16;
  EXPECT_THROW(choose(d, {}), Error);
  d = {.pixels = int64_t{1} << 31, .channels = 8, .out = 8};
  EXPECT_THROW(choose(d, {}), Error);
}

// Kernels count a picture's pixels in 32 bits, also those that a stride leaves out.
TEST(ConvConfig, RefusesPicturesBeyond31Bits) {
  const auto desc = [](int64_t side) {
    const ops::Conv2dAttrs a{.height = side, .width = side, .stride = 2, .padding = 1};
    return conv_desc(a, {DType::bf16, {side * side, 3}}, {DType::bf16, {8, 3, 3, 3}});
  };
  EXPECT_EQ(choose(desc(46340), {}).kernel, ConvKernel::plain);
  EXPECT_THROW(choose(desc(46342), {}), Error);
}

}  // namespace
}  // namespace braid::cuda
