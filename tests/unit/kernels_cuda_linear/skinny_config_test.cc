#include "braid/kernels/cuda/linear/skinny_config.h"

#include <gtest/gtest.h>

#include "braid/base/error.h"

namespace braid::cuda {
namespace {

SkinnyShape make_shape(DType dtype, int64_t k, int64_t columns, int m, bool gated = false) {
  SkinnyShape s;
  s.dtype = dtype;
  s.k = k;
  s.columns = columns;
  s.m = m;
  s.gated = gated;
  return s;
}

// What any config must satisfy for the kernel to be right.
void check(const SkinnyShape& shape, const SkinnyConfig& c, const SkinnyDevice& device) {
  SCOPED_TRACE(std::string(name(shape.dtype)) + " k " + std::to_string(shape.k) + " n " +
               std::to_string(shape.columns) + " m " + std::to_string(shape.m) + " as " +
               to_string(c));
  EXPECT_GE(c.tokens, 1);
  EXPECT_LE(c.tokens, kSkinnyMaxTokens);
  EXPECT_LE(c.tokens, shape.m);
  EXPECT_TRUE(skinny_fits(shape, c, device));
  EXPECT_TRUE(c.cluster == 1 || c.cluster == 2 || c.cluster == 4 || c.cluster == 8);
  EXPECT_GE(c.clusters, 1);
  EXPECT_LE(c.clusters * c.cluster, device.num_sms);
  EXPECT_LE(c.clusters, shape.columns);
  // Each CTA of a cluster has some of K, together all of it.
  const int64_t k = skinny_k_per_cta(shape, c.cluster);
  EXPECT_EQ(k % skinny_granule(shape.dtype), 0);
  EXPECT_GE(k * c.cluster, shape.k);
  EXPECT_LT(k * (c.cluster - 1), shape.k);
  if (c.split_k || device.compute_capability < 90) {
    EXPECT_EQ(c.cluster, 1);
  }
  EXPECT_EQ(c.chunk % 256, 0);
  if (c.bulk) {
    EXPECT_GE(c.stages, kSkinnyMinStages);
    EXPECT_TRUE(c.split_k || c.stages % kSkinnyWarps == 0);
    EXPECT_GE(device.compute_capability, 90);
  } else {
    EXPECT_EQ(c.stages, 1);
  }
  const SkinnySmem s = skinny_smem(shape, c);
  EXPECT_LE(s.total, device.smem_per_cta);
  EXPECT_EQ(s.pitch % 16, 0);
  EXPECT_GE(s.pitch, bytes_of(shape.dtype, c.chunk) + (shape.aligned ? 0 : 15));
  // Regions follow one another.
  EXPECT_GE(s.x, c.stages * kSkinnyTileRows * s.pitch);
  EXPECT_GE(s.sums - s.x, k / 32 * c.tokens * 64);
  EXPECT_GE(s.partials - s.sums, k / 32 * c.tokens * skinny_groups(shape.dtype) * 4);
  EXPECT_GE(s.exchange - s.partials, c.split_k ? 2 * kSkinnyWarps * 512 : 0);
  EXPECT_GE(s.squares - s.exchange, c.cluster == 1 ? 0 : kSkinnyWarps * 512);
  EXPECT_GE(s.barriers - s.squares, kSkinnyWarps * kSkinnyMaxTokens * 4);
  EXPECT_GE(s.total - s.barriers, 8 * (2 * c.stages + 2 * kSkinnyWarps));
}

TEST(SkinnyConfig, EveryShapeGetsOneThatFits) {
  for (const int compute : {80, 90}) {
    SkinnyDevice device;
    device.compute_capability = compute;
    if (compute == 80) {
      device = {
          .compute_capability = 80, .num_sms = 108, .smem_per_cta = 166912, .smem_per_sm = 167936};
    }
    for (int t = 0; t < kNumDTypes; ++t) {
      const auto dtype = static_cast<DType>(t);
      if (dtype == DType::i32) continue;
      for (int64_t k :
           {1, 31, 32, 100, 192, 256, 576, 1536, 2048, 4096, 4104, 11008, 14336, 28672}) {
        if (k % info(dtype).block_elems != 0) continue;
        for (int64_t columns : {1, 7, 8, 9, 192, 576, 960, 4096, 12288, 11008, 49152, 128256}) {
          for (int m : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64}) {
            for (const bool aligned : {true, false}) {
              SkinnyShape shape = make_shape(dtype, k, columns, m, m % 2 == 0);
              shape.aligned = aligned;
              shape.bulk = is_quantized(dtype) || (k % 32 == 0 && aligned);
              check(shape, choose_skinny(shape, device), device);
            }
          }
        }
      }
    }
  }
}

TEST(SkinnyConfig, OneTokenLeavesRoomForTheNextLaunch) {
  const SkinnyDevice device;
  for (auto [k, n] : {std::pair{4096, 12288}, {4096, 4096}, {11008, 4096}, {4096, 32000}}) {
    const SkinnyShape shape = make_shape(DType::bf16, k, n, 1);
    const SkinnyConfig c = choose_skinny(shape, device);
    EXPECT_EQ(c.cluster, 1) << to_string(c);
    EXPECT_EQ(c.clusters, 132) << to_string(c);
    EXPECT_LE(skinny_smem(shape, c).total + 1024, device.smem_per_sm / 2) << to_string(c);
    EXPECT_GE(skinny_smem(shape, c).x, 64 << 10) << to_string(c);
  }
}

TEST(SkinnyConfig, EightTokensGoInOneLaunch) {
  for (int k : {4096, 11008}) {
    EXPECT_EQ(choose_skinny(make_shape(DType::bf16, k, 4096, 8), {}).tokens, 8);
    EXPECT_EQ(choose_skinny(make_shape(DType::bf16, k, 4096, 9), {}).tokens, 5);
    EXPECT_EQ(choose_skinny(make_shape(DType::bf16, k, 4096, 64), {}).tokens, 8);
  }
}

TEST(SkinnyConfig, Printable) {
  EXPECT_EQ(to_string(SkinnyConfig{}), "split k, 132 ctas, 5 x 512, 1 token");
  EXPECT_EQ(
      to_string(SkinnyConfig{
          .split_k = false, .tokens = 8, .cluster = 8, .clusters = 16, .chunk = 256, .stages = 8}),
      "split tiles, 16 clusters of 8, 8 x 256, 8 tokens");
}

TEST(SkinnyConfig, KThatFitsNowhereIsRefused) {
  EXPECT_THROW(choose_skinny(make_shape(DType::bf16, 1 << 22, 8, 1), {}), Error);
}

}  // namespace
}  // namespace braid::cuda
