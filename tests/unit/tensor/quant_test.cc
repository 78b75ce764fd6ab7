#include "braid/tensor/quant.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "braid/base/error.h"

namespace braid {
namespace {

std::vector<float> random_row(size_t n, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> row(n);
  for (float& x : row) x = normal(rng);
  return row;
}

// Half a step of each format's grid over a block, for values that the block's range covers.
double half_step(DType dtype, const float* x) {
  float low = x[0], high = x[0], most = 0;
  for (int i = 0; i < 32; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    most = std::max(most, std::abs(x[i]));
  }
  switch (dtype) {
    case DType::q8_0:
      return most / 127 / 2;
    case DType::q4_0:
      return most / 8;  // the short end of the grid is one step short
    case DType::q5_0:
      return most / 16;
    case DType::q4_1:
      return (high - low) / 15 / 2;
    case DType::q5_1:
      return (high - low) / 31 / 2;
    default:
      ADD_FAILURE();
      return 0;
  }
}

class Quant32Test : public testing::TestWithParam<DType> {};

TEST_P(Quant32Test, RoundTripStaysWithinTheGrid) {
  const DType dtype = GetParam();
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const std::vector<float> x = random_row(96, seed);
    std::vector<std::byte> blocks(static_cast<size_t>(bytes_of(dtype, 96)), std::byte{0xa5});
    std::vector<float> y(96, NAN);
    quantize_row(dtype, x.data(), blocks.data(), 96);
    dequantize_row(dtype, blocks.data(), y.data(), 96);
    for (size_t i = 0; i < 96; ++i) {
      const float* block = &x[i / 32 * 32];
      // The block's scale and minimum are f16: 2^-11 of the largest value more.
      EXPECT_NEAR(y[i], x[i], half_step(dtype, block) + 4 * 0x1p-9) << name(dtype) << " " << seed;
    }
  }
}

TEST_P(Quant32Test, ZerosStayZero) {
  const std::vector<float> x(32, 0.0f);
  std::vector<std::byte> block(static_cast<size_t>(bytes_of(GetParam(), 32)));
  std::vector<float> y(32, NAN);
  quantize_row(GetParam(), x.data(), block.data(), 32);
  dequantize_row(GetParam(), block.data(), y.data(), 32);
  for (float v : y) EXPECT_EQ(v, 0.0f);
}

INSTANTIATE_TEST_SUITE_P(Formats, Quant32Test,
                         testing::Values(DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0,
                                         DType::q5_1),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(QuantTest, ScalesOfKBlocksUnpackEveryBit) {
  // Group g has scale 7g + 1 and minimum 9g, packed by the rule of the format written out by hand.
  uint8_t packed[12] = {};
  for (int g = 0; g < 8; ++g) {
    const int scale = 7 * g + 1, min = 9 * g;
    if (g < 4) {
      packed[g] = static_cast<uint8_t>(packed[g] | scale);
      packed[g + 4] = static_cast<uint8_t>(packed[g + 4] | min);
    } else {
      packed[g + 4] = static_cast<uint8_t>(packed[g + 4] | (scale & 15) | (min & 15) << 4);
      packed[g - 4] = static_cast<uint8_t>(packed[g - 4] | (scale >> 4) << 6);
      packed[g] = static_cast<uint8_t>(packed[g] | (min >> 4) << 6);
    }
  }
  for (int g = 0; g < 8; ++g) {
    uint8_t scale = 0, min = 0;
    unpack_scale_min_k(g, packed, &scale, &min);
    EXPECT_EQ(scale, 7 * g + 1);
    EXPECT_EQ(min, 9 * g);
  }
}

TEST(QuantTest, KFormatsAreReadOnly) {
  std::vector<float> x(256);
  std::vector<std::byte> block(256);
  EXPECT_THROW(quantize_row(DType::q6_k, x.data(), block.data(), 256), Error);
}

// Rows of f16 are widened by arithmetic on bits, single numbers by the processor or its library.
TEST(HalfTest, RowsOfF16HaveTheBitsOfSingleNumbers) {
  std::vector<f16> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  std::vector<float> wide(all.size());
  dequantize_row(DType::f16, all.data(), wide.data(), std::ssize(all));
  for (size_t i = 0; i < all.size(); ++i) {
    const float one = to_float(all[i]);
    if (std::isnan(one)) {
      EXPECT_TRUE(std::isnan(wide[i])) << i;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(one)) << i;
    }
  }
}

TEST(HalfTest, EveryF16AndBf16RoundTrips) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const f16 h{static_cast<uint16_t>(bits)};
    const bf16 b{static_cast<uint16_t>(bits)};
    if (!std::isnan(to_float(h))) {
      EXPECT_EQ(to_f16(to_float(h)).bits, bits);
    }
    if (!std::isnan(to_float(b))) {
      EXPECT_EQ(to_bf16(to_float(b)).bits, bits);
    }
  }
  EXPECT_TRUE(std::isnan(to_float(to_bf16(NAN))));
}

}  // namespace
}  // namespace braid
