#include "braid/kernels/cuda/image/conv_config.h"

#include <gtest/gtest.h>

#include "braid/base/error.h"

namespace braid::cuda {
namespace {

TEST(ConvConfig, TensorCoresForWholeBlocksOfChannels) {
  const ops::Conv2dAttrs a{.height = 128, .width = 96, .padding = 1, .upsample = 2};
  const ConvDesc d = conv_desc(a, {DType::bf16, {128 * 96, 512}}, {DType::bf16, {256, 512, 3, 3}});
  EXPECT_EQ(to_string(d), "bf16 49152 x 256, 9 x 512");
  EXPECT_EQ(to_string(choose(d, 80)), "mma 128x128x64, 3 stages");
  EXPECT_EQ(to_string(choose(d, 90)), "wgmma 256x128x64, 4 stages");
  ConvDesc other = d;
  other.channels = 16;
  EXPECT_EQ(to_string(choose(other, 90)), "plain 64x64x16, 1 stages");
  other = d, other.dtype = DType::f32;
  EXPECT_EQ(choose(other, 90).kernel, ConvKernel::plain);
  other = d, other.out = 3;
  EXPECT_EQ(choose(other, 90).kernel, ConvKernel::mma);
}

TEST(ConvConfig, FramesArePictures) {
  const ValueType x{DType::bf16, {3 * 48 * 32, 256}};
  const ops::Conv2dAttrs a =
      frames_as_pictures({.height = 48, .width = 32, .padding = 1, .silu = true}, x.shape);
  EXPECT_EQ(a,
            (ops::Conv2dAttrs{.batch = 3, .height = 48, .width = 32, .padding = 1, .silu = true}));
  const ConvDesc d = conv_desc(a, x, {DType::bf16, {128, 256, 3, 3, 3}});
  EXPECT_EQ(to_string(d), "bf16 4608 x 128, 27 x 256");
  EXPECT_EQ(choose(d, 90).kernel, ConvKernel::wgmma);
}

TEST(ConvConfig, RefusesByName) {
  ConvDesc d{.pixels = 1, .channels = 8, .out = 8};
  d.dtype = DType::f16;
  EXPECT_THROW(choose(d, 90), Error);
  d = {.pixels = int64_t{1} << 31, .channels = 8, .out = 8};
  EXPECT_THROW(choose(d, 90), Error);
}

}  // namespace
}  // namespace braid::cuda
