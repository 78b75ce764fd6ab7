// Which kernel takes a product of few tokens. Pure: no GPU is needed.
#include <gtest/gtest.h>

#include "braid/kernels/cuda/linear/device/few_linear.h"

namespace braid::cuda {
namespace {

// A call whose operands lie where a GPU's do; nothing reads them.
SkinnyParams call(DType dtype, int m) {
  alignas(256) static std::byte somewhere[256];
  SkinnyParams p;
  p.x = somewhere;
  p.x_stride = p.k = 4096;
  p.m = m;
  p.parts[0] = {.w = somewhere,
                .dtype = dtype,
                .row_bytes = bytes_of(dtype, p.k),
                .y = somewhere,
                .y_stride = 4096,
                .n = 4096};
  return p;
}

std::string_view kernel_of(const SkinnyParams& p, const SkinnyDevice& device = {}) {
  constexpr std::string_view kNames[] = {"stream", "panel", "skinny"};
  return kNames[choose_few(p, device).index()];
}

TEST(FewLinear, TokensAndFormatsDecide) {
  EXPECT_EQ(kernel_of(call(DType::bf16, 1)), "stream");
  for (int m : {2, 4, 5, 8, 17, 32, 33, 64}) {
    EXPECT_EQ(kernel_of(call(DType::bf16, m)), "panel") << m;
  }
  EXPECT_EQ(kernel_of(call(DType::bf16, 65)), "skinny");
  for (int m : {1, 4}) EXPECT_EQ(kernel_of(call(DType::q4_0, m)), "skinny") << m;
  for (int m : {5, 32}) EXPECT_EQ(kernel_of(call(DType::q4_0, m)), "panel") << m;
  EXPECT_EQ(kernel_of(call(DType::q4_0, 33)), "skinny") << "warpgroups multiply bf16 alone";
  EXPECT_EQ(kernel_of(call(DType::f32, 8)), "skinny") << "no copies of 16 bits";
}

TEST(FewLinear, WhatTheFastOnesCannotReadGoesToSkinny) {
  for (const int m : {1, 8}) {
    SkinnyParams p = call(DType::bf16, m);
    p.parts[0].row_bytes += 2;
    EXPECT_EQ(kernel_of(p), "skinny") << "rows begin anywhere";
    p = call(DType::bf16, m);
    p.x = static_cast<const std::byte*>(p.x) + 2;
    EXPECT_EQ(kernel_of(p), "skinny") << "so does x";
  }
  EXPECT_EQ(kernel_of(call(DType::bf16, 8), {.compute_capability = 80}), "skinny")
      << "panels want Hopper's copies";
  for (const int m : {1, 4}) {
    EXPECT_EQ(kernel_of(call(DType::bf16, m), {.compute_capability = 80}), "stream") << m;
  }
}

// A norm inside keeps a product from panels; where panels pay, the norm becomes a launch ahead.
TEST(FewLinear, NormsGoAheadOfPanels) {
  for (const int m : {1, 2, 3, 4}) {
    EXPECT_EQ(norm_goes_first(call(DType::bf16, m), {}), m >= 2) << m;
    EXPECT_FALSE(norm_goes_first(call(DType::q4_0, m), {})) << m;
    EXPECT_FALSE(norm_goes_first(call(DType::bf16, m), {.compute_capability = 80})) << m;
    SkinnyParams normed = call(DType::bf16, m);
    normed.normed = true;
    EXPECT_EQ(kernel_of(normed), "stream") << m;
  }
}

}  // namespace
}  // namespace braid::cuda
