// Convolution and group norm against their scalar references, through the kernel table.
#include "backend/cpu/op_case.h"
#include "braid/ops/conv2d.h"
#include "braid/ops/conv3d.h"
#include "braid/ops/group_norm.h"
#include "braid/ops/latent_scale.h"

namespace braid::cpu {
namespace {

using namespace testing;

std::mt19937 seeded() {
  const int seed = ::testing::UnitTest::GetInstance()->random_seed();
  std::printf("seed %d\n", seed);
  return std::mt19937(static_cast<uint32_t>(seed));
}

TEST(ImageOps, Conv2d) {
  std::mt19937 random = seeded();
  const auto pick = [&](std::initializer_list<int64_t> of) {
    return *(of.begin() + std::uniform_int_distribution<size_t>(0, of.size() - 1)(random));
  };
  const auto coin = [&] { return pick({0, 1}) == 1; };
  for (int round = 0; round < 60; ++round) {
    ops::Conv2dAttrs a{.batch = pick({1, 2}),
                       .height = pick({1, 3, 8, 13}),
                       .width = pick({1, 2, 7, 16, 31}),
                       .stride = pick({1, 1, 2, 3}),
                       .padding = pick({0, 1, 2}),
                       .upsample = pick({1, 2, 3}),
                       .silu = coin()};
    const int64_t C = pick({1, 3, 16, 17, 40}), O = pick({1, 3, 8, 32, 33, 70});
    const int64_t kh = pick({1, 3}), kw = pick({1, 3, 5});
    const int64_t height = a.out_size(a.height, kh), width = a.out_size(a.width, kw);
    if (a.height * a.upsample + 2 * a.padding < kh || a.width * a.upsample + 2 * a.padding < kw) {
      continue;
    }
    const DType weights = std::array{DType::f32, DType::f16, DType::bf16}[round % 3];
    check({&ops::kConv2d,
           Attrs::of(a),
           {f32({a.batch * a.height * a.width, C}),
            {weights, {O, C, kh, kw}},
            coin() ? f32({O}) : kAbsent,
            coin() ? f32({a.batch * height * width, O}) : kAbsent},
           1e-4},
          static_cast<uint32_t>(random()));
  }
}

// More than one unit of packing and more pixels than a group, for each of several threads.
TEST(ImageOps, Conv2dOfManyChannels) {
  check({&ops::kConv2d,
         Attrs::of(ops::Conv2dAttrs{.height = 20, .width = 19, .padding = 1, .upsample = 2}),
         {f32({380, 150}), f32({130, 150, 3, 3}), f32({130}), kAbsent},
         3e-4},
        11);
}

TEST(ImageOps, Conv3d) {
  uint32_t seed = 1;
  for (const int64_t frames : {1, 2, 5}) {
    for (const int64_t before : {0, 2, 3}) {
      for (const int64_t padding : {0, 1}) {
        for (const auto& [C, O] : {std::pair<int64_t, int64_t>{3, 5}, {17, 33}, {40, 8}}) {
          const int64_t K = 2 * padding + 1, frame = 4 * 7;
          check({&ops::kConv3d,
                 Attrs::of(ops::Conv3dAttrs{
                     .height = 4, .width = 7, .padding = padding, .silu = before == 2}),
                 {f32({frames * frame, C}), f32({O, C, before == 0 && padding == 0 ? 1 : 3, K, K}),
                  f32({O}), before == 3 ? f32({frames * frame, O}) : kAbsent,
                  before == 0 ? kAbsent : f32({before * frame, C})},
                 2e-4},
                seed++);
        }
      }
    }
  }
}

TEST(ImageOps, LatentScale) {
  uint32_t seed = 1;
  for (const auto& [frames, latents] :
       {std::pair<int64_t, int64_t>{1, 1}, {3, 3}, {5, 3}, {9, 3}, {4, 2}, {8, 2}}) {
    for (const int64_t up : {1, 4}) {
      check({&ops::kLatentScale,
             Attrs::of(ops::LatentScaleAttrs{.height = 3 * up,
                                             .width = 2 * up,
                                             .latent_height = 3,
                                             .latent_width = 2,
                                             .silu = up == 4}),
             {f32({frames * 6 * up * up, 9}), f32({latents * 6, 9}), f32({latents * 6, 9})}},
            seed++);
    }
  }
}

TEST(ImageOps, GroupNorm) {
  std::mt19937 random = seeded();
  for (const bool silu : {false, true}) {
    for (const int64_t batch : {1, 3}) {
      for (const int64_t pixels : {1, 3, 64, 65, 300}) {
        for (const auto& [groups, per_group] :
             {std::pair<int64_t, int64_t>{1, 1}, {2, 3}, {32, 4}, {5, 16}, {32, 16}}) {
          const int64_t C = groups * per_group;
          if (pixels * per_group == 1) continue;  // nothing but the bias is left
          check({&ops::kGroupNorm,
                 Attrs::of(ops::GroupNormAttrs{.batch = batch, .groups = groups, .silu = silu}),
                 {f32({batch * pixels, C}), f32({C}), f32({C})},
                 2e-5},
                static_cast<uint32_t>(random()));
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid::cpu
