#include "braid/kernels/cuda/linear/panel_config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "braid/kernels/cuda/decode/layout.h"

namespace braid::cuda {
namespace {

// What any config must satisfy for the kernel to be right: clusters have all groups, none without
// work, CTAs have all of K, none without a stage, and what is in shared memory fits there.
void check(const PanelShape& s, const SkinnyDevice& device) {
  const PanelConfig c = choose_panel(s, device);
  SCOPED_TRACE(
      fmt::format("k {} groups {} tokens {}: {}", s.k, s.groups[0], s.tokens, to_string(c)));
  ASSERT_TRUE(panel_fits(s, c, device));
  const int64_t clusters = panel_clusters(s, c);
  const int64_t groups = s.groups[0] + s.groups[1] + s.groups[2];
  EXPECT_GE(clusters * c.groups, groups) << "groups are left out";
  const auto parts = 3 - std::ranges::count(s.groups, 0);
  EXPECT_LT((clusters - parts) * c.groups, groups) << "a cluster without work";
  EXPECT_LE(c.groups, kPanelMaxGroups);
  EXPECT_GE(c.split, 1);
  EXPECT_LE(c.split, 8) << "a portable cluster";
  const PanelSlab slab = panel_slab(s.dtype);
  EXPECT_LE(c.split, panel_k_stages(s, c.slabs)) << "a CTA without a stage";
  EXPECT_GE(panel_k_stages(s, c.slabs) * c.slabs * slab.elems, s.k) << "of K something is left out";
  EXPECT_LE(c.slabs * slab.elems / kPanelXSlab, 256) << "of a box";
  EXPECT_GE(c.stages, 2);
  const PanelSmem m = panel_smem(s, c);
  const int tokens = 8 * panel_tiles(s.tokens);
  EXPECT_GE(m.x, c.groups * 16 * c.slabs * slab.pitch);
  EXPECT_GE(m.stage - m.x, tokens * c.slabs * slab.elems * 2);
  EXPECT_EQ(m.x % 1024, 0) << "where a swizzle begins";
  EXPECT_EQ(m.stage % 1024, 0) << "where a swizzle begins";
  EXPECT_GE(m.barriers, c.stages * m.stage);
  EXPECT_GE(m.pitch, 16 * c.groups);
  EXPECT_EQ(m.pitch % 4, 0) << "sums are read in fours";
  EXPECT_GE(m.barriers, tokens * m.pitch * 4);
  EXPECT_EQ(m.barriers % 8, 0);
  EXPECT_GE(m.total - m.barriers, 2 * c.stages * 8);
  EXPECT_LE(m.total, device.smem_per_cta);
}

TEST(PanelConfig, EveryShapeThatIsTakenFits) {
  int taken = 0;
  for (const int num_sms : {1, 78, 132}) {
    const SkinnyDevice device = {.num_sms = num_sms};
    for (const int64_t k : {64, 96, 128, 576, 1536, 4096, 5504, 11008, 14336, 28672}) {
      for (const int64_t groups : {1, 2, 3, 15, 16, 17, 36, 256, 384, 688, 1376, 1792, 8016}) {
        for (const int tokens : {1, 2, 4, 5, 8, 9, 16, 17, 24, 25, 32, 33, 48, 64}) {
          for (const DType dtype : {DType::bf16, DType::q4_1, DType::q8_0, DType::q6_k}) {
            const PanelShape shape = {.dtype = dtype,
                                      .k = k,
                                      .groups = {groups, tokens % 3, tokens % 2},
                                      .tokens = tokens};
            if (k % info(dtype).block_elems != 0 || !panel_takes(shape, device)) continue;
            check(shape, device);
            ++taken;
          }
        }
      }
    }
  }
  EXPECT_GT(taken, 2000);
}

// What the copy engine takes: whole 16 bytes a row, 128 a box of 8 rows, slabs of whole blocks.
TEST(PanelConfig, SlabsAreWhole) {
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto dtype = static_cast<DType>(t);
    const PanelSlab slab = panel_slab(dtype);
    if (slab.elems == 0) continue;
    SCOPED_TRACE(name(dtype));
    EXPECT_EQ(slab.elems % info(dtype).block_elems, 0);
    EXPECT_EQ(slab.elems % kPanelXSlab, 0);
    EXPECT_EQ(slab.stride, bytes_of(dtype, slab.elems));
    EXPECT_GE(slab.pitch, slab.stride);
    EXPECT_EQ(slab.pitch % 16, 0);
    EXPECT_LE(slab.pitch / 2, 256);
  }
}

TEST(PanelConfig, TakesFewTokensOfAllButF32) {
  const PanelShape good = {.k = 4096, .groups = {256}, .tokens = 16};
  EXPECT_TRUE(panel_takes(good, {}));
  const auto refuses = [&](auto&& change) {
    PanelShape s = good;
    change(s);
    return !panel_takes(s, {});
  };
  EXPECT_TRUE(refuses([](PanelShape& s) { s.tokens = 65; }));
  EXPECT_FALSE(refuses([](PanelShape& s) { s.tokens = 64; }));
  EXPECT_TRUE(refuses([](PanelShape& s) { s.aligned = false; }));
  EXPECT_TRUE(refuses([](PanelShape& s) { s.normed = true; }));
  EXPECT_TRUE(refuses([](PanelShape& s) { s.k = 4096 + 32; }));
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto dtype = static_cast<DType>(t);
    EXPECT_EQ(refuses([&](PanelShape& s) { s.dtype = dtype; }),
              dtype == DType::f32 || dtype == DType::i32);
    EXPECT_EQ(refuses([&](PanelShape& s) { s.dtype = dtype, s.tokens = 33; }),
              dtype != DType::bf16);
  }
  for (const int other : {80, 89, 100, 120}) {
    EXPECT_FALSE(panel_takes(good, {.compute_capability = other}));
  }
}

TEST(PanelConfig, FitsOnlyWhatIsWhole) {
  const PanelShape shape = {.k = 512, .groups = {20}, .tokens = 16};
  const PanelConfig good = {.groups = 10, .split = 2, .slabs = 2, .stages = 3};
  EXPECT_TRUE(panel_fits(shape, good, {}));
  const auto refuses = [&](auto&& change) {
    PanelConfig c = good;
    change(c);
    return !panel_fits(shape, c, {});
  };
  EXPECT_TRUE(refuses([](PanelConfig& c) { c.groups = 0; }));
  EXPECT_TRUE(refuses([](PanelConfig& c) { c.groups = 17; }));
  EXPECT_TRUE(refuses([](PanelConfig& c) { c.split = 5; }));
  EXPECT_TRUE(refuses([](PanelConfig& c) { c.split = 0; }));
  EXPECT_TRUE(refuses([](PanelConfig& c) { c.stages = 1; }));
  EXPECT_TRUE(refuses([](PanelConfig& c) { c.slabs = 0; }));
  EXPECT_TRUE(refuses([](PanelConfig& c) { c.slabs = 8, c.stages = 16; }));
}

// Two CTAs an SM where these fill it with panels of few groups, else one.
TEST(PanelConfig, FillsTheDevice) {
  const SkinnyDevice device;
  for (const auto& [groups, k, two] : {std::tuple<int64_t, int64_t, bool>{256, 4096, false},
                                       {256, 14336, false},
                                       {384, 4096, false},
                                       {768, 4096, true},
                                       {1376, 4096, false},
                                       {1792, 4096, false}}) {
    for (const int tokens : {8, 16, 24, 32}) {
      const PanelShape shape = {.k = k, .groups = {groups}, .tokens = tokens};
      const PanelConfig c = choose_panel(shape, device);
      SCOPED_TRACE(fmt::format("groups {} tokens {}: {}", groups, tokens, to_string(c)));
      const int64_t ctas = panel_clusters(shape, c) * c.split;
      EXPECT_LE(ctas, (two ? 2 : 1) * device.num_sms);
      EXPECT_GE(ctas, (two ? 2 : 1) * device.num_sms * 9 / 10);
      const bool two_fit = 2 * (panel_smem(shape, c).total + 1024) <= device.smem_per_sm;
      EXPECT_EQ(two_fit, two);
      EXPECT_GE(c.stages, 3);
      EXPECT_EQ(c.trigger, c.stages);
    }
  }
}

// q, k and v leave room for a CTA of four warps of the attention behind them, and let it in early.
TEST(PanelConfig, BesideAttention) {
  const SkinnyDevice device;
  for (const auto& [q, kv] : {std::pair<int64_t, int64_t>{256, 256}, {256, 64}, {512, 64}}) {
    for (const int tokens : {8, 16, 24, 32}) {
      const PanelShape shape = {.k = 4096, .groups = {q, kv, kv}, .tokens = tokens};
      const PanelConfig c = choose_panel(shape, device);
      SCOPED_TRACE(fmt::format("groups {} and {} tokens {}: {}", q, kv, tokens, to_string(c)));
      EXPECT_LE(panel_clusters(shape, c), device.num_sms);
      const int attention = DecodeShared(128, 4, tokens).bytes;
      EXPECT_LE(panel_smem(shape, c).total + attention + 2 * 1024, device.smem_per_sm);
      EXPECT_GT(c.trigger, c.stages);
    }
  }
}

// Tall panels, one CTA an SM or two; thin ones have K divided.
TEST(PanelConfig, WidePanelsOfKnownShapes) {
  const SkinnyDevice device;
  for (const auto& [groups, k, split, ctas] :
       {std::tuple<int64_t, int64_t, int, int64_t>{256, 4096, 2, 128},
        {256, 11008, 2, 128},
        {768, 4096, 1, 128},
        {1376, 4096, 1, 126},
        {1792, 4096, 1, 256},
        {3, 64, 1, 3}}) {
    for (const int tokens : {33, 64}) {
      const PanelShape shape = {.k = k, .groups = {groups}, .tokens = tokens};
      const PanelConfig c = choose_panel(shape, device);
      SCOPED_TRACE(fmt::format("groups {} tokens {}: {}", groups, tokens, to_string(c)));
      EXPECT_EQ(c.split, split);
      EXPECT_EQ(panel_clusters(shape, c) * c.split, ctas);
    }
  }
}

TEST(PanelConfig, Printable) {
  EXPECT_EQ(to_string(PanelConfig{.groups = 16, .split = 2, .slabs = 1, .stages = 3}),
            "panel 16 groups, k / 2, 3 x 1 slabs");
}

TEST(PanelConfig, NoPanelHasTwoParts) {
  EXPECT_EQ(panel_clusters({.groups = {16, 1, 17}}, {.groups = 16}), 4);
}

}  // namespace
}  // namespace braid::cuda
