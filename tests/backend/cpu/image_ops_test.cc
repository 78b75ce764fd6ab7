// Convolution and group norm against their scalar references, through the kernel table.
#include "backend/cpu/op_case.h"
#include "braid/base/math.h"
#include "braid/kernels/cpu/image/group_norm.h"
#include "braid/ops/conv2d.h"
#include "braid/ops/conv3d.h"
#include "braid/ops/group_norm.h"
#include "braid/ops/latent_scale.h"
#include "braid/ops/picture_rows.h"

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
    if (a.batch == 1 && a.out_size(a.height, kh) > 2 && coin()) {  // some rows alone
      a.first_row = 1;
      a.rows = a.out_size(a.height, kh) - 2;
    }
    const int64_t height = a.out_height(kh), width = a.out_width(kw);
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
          const bool part = (frames + C) % 2 == 0;  // rows 1 and 2 of 4
          check({&ops::kConv3d,
                 Attrs::of(ops::Conv3dAttrs{.height = 4,
                                            .width = 7,
                                            .padding = padding,
                                            .first_row = part ? 1 : 0,
                                            .rows = part ? 2 : 0,
                                            .silu = before == 2}),
                 {f32({frames * frame, C}), f32({O, C, before == 0 && padding == 0 ? 1 : 3, K, K}),
                  f32({O}), before == 3 ? f32({frames * frame / (part ? 2 : 1), O}) : kAbsent,
                  before == 0 ? kAbsent : f32({before * frame, C})},
                 2e-4},
                seed++);
        }
      }
    }
  }
}

// Strides and repeated pixels and frames, whose first may stand alone.
TEST(ImageOps, Conv3dOfSteps) {
  std::mt19937 random = seeded();
  const auto pick = [&](std::initializer_list<int64_t> of) {
    return *(of.begin() + std::uniform_int_distribution<size_t>(0, of.size() - 1)(random));
  };
  for (int round = 0; round < 80; ++round) {
    ops::Conv3dAttrs a{.height = pick({1, 3, 8}),
                       .width = pick({1, 2, 7, 17}),
                       .stride = pick({1, 1, 2, 3}),
                       .padding = pick({0, 1}),
                       .upsample = pick({1, 2, 3}),
                       .frame_stride = pick({1, 2, 3}),
                       .frame_upsample = pick({1, 2, 3}),
                       .first_once = pick({0, 1}) == 1,
                       .silu = pick({0, 1}) == 1};
    if (const int64_t all = a.out_size(a.height); all > 2 && pick({0, 1}) == 1) {
      a.first_row = 1;
      a.rows = all - 2;
    }
    const int64_t C = pick({3, 17, 40}), O = pick({1, 5, 33}), Kt = pick({1, 2, 3});
    const int64_t K = (2 * a.padding) + 1, frame = a.height * a.width, frames = pick({1, 2, 5});
    const int64_t before = pick({0, ceil_div(Kt - 1, a.frame_upsample), 3});
    const int64_t pixels = a.out_frames(frames) * a.out_height() * a.out_width();
    check({&ops::kConv3d,
           Attrs::of(a),
           {f32({frames * frame, C}), f32({O, C, Kt, K, K}), pick({0, 1}) == 1 ? f32({O}) : kAbsent,
            pick({0, 1}) == 1 ? f32({pixels, O}) : kAbsent,
            before == 0 ? kAbsent : f32({before * frame, C})},
           2e-4},
          static_cast<uint32_t>(random()));
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

// A picture whose rows ranks divide.
TEST(ImageOps, PictureRows) {
  uint32_t seed = 1;
  for (const int64_t width : {1, 5, 16}) {
    for (const int64_t rows : {1, 2, 7}) {
      for (const int64_t C : {4, 24}) {
        const ValueType x = f32({rows * width, C});
        for (const int64_t frames : {1, 3}) {
          const ValueType all = f32({frames * rows * width, C});
          check({&ops::kEdgeRows, Attrs::of(ops::EdgeRowsAttrs{width, frames}), {all}, 0}, seed++);
          for (const int rank : {0, 1, 2}) {
            check({&ops::kWithHalo,
                   Attrs::of(ops::WithHaloAttrs{width, rank, 3, frames}),
                   {all, f32({6 * frames * width, C})},
                   0},
                  seed++);
          }
        }
        // Random statistics of enough pixels to keep each variance positive.
        for (const int rank : {-1, 0, 1, 2}) {
          ops::GroupNormByAttrs by{{.groups = 4, .eps = 0.01f, .silu = rank % 2 == 0},
                                   {5'000'000'000, 50, 7'000'000'000},
                                   {}};
          if (rank >= 0) by.halo = ops::WithHaloAttrs{width, rank, 3};
          check({&ops::kGroupNormBy,
                 Attrs::of(by),
                 {x, f32({C}), f32({C}), f32({3, 8}), rank < 0 ? kAbsent : f32({6 * width, C})},
                 2e-5},
                seed++);
        }
        if (rows * width < 5) continue;  // spread enough to divide by
        check({&ops::kGroupStats,
               Attrs::of(ops::GroupStatsAttrs{4}),
               {x},
               1e-6 * static_cast<double>(rows * width * C)},
              seed++);
      }
    }
  }
}

// Norms of parts by the statistics of all parts are the norm of the whole.
TEST(ImageOps, GroupNormByParts) {
  constexpr int64_t kGroups = 4, C = 12;
  const std::vector<int64_t> pixels = {3, 70, 1};
  std::mt19937 random = seeded();
  std::normal_distribution<float> normal(3, 2);
  std::vector<float> x(static_cast<size_t>(74 * C)), w(C, 1.5f), b(C, 0.25f), want(x.size());
  for (float& v : x) v = normal(random);
  std::vector<std::byte> scratch(static_cast<size_t>(group_norm_scratch_bytes(C, 1)));
  GroupNormParams p{.x = x.data(),
                    .w = w.data(),
                    .b = b.data(),
                    .y = want.data(),
                    .batch = 1,
                    .pixels = 74,
                    .channels = C,
                    .groups = kGroups,
                    .eps = 1e-6f,
                    .silu = true};
  ThreadPool pool(1);
  pool.run([&](const Team& team) { group_norm(p, scratch.data(), team); });
  std::vector<float> stats(2 * kGroups * pixels.size()), got(x.size());
  const ops::GroupNormByAttrs attrs{{.groups = kGroups, .eps = 1e-6f, .silu = true}, pixels};
  for (const bool norm : {false, true}) {
    int64_t at = 0;
    for (size_t r = 0; r < pixels.size(); ++r) {
      p.x = x.data() + (at * C);
      p.y = got.data() + (at * C);
      p.pixels = pixels[r];
      pool.run([&](const Team& team) {
        if (!norm) return group_stats(p, stats.data() + (2 * kGroups * r), scratch.data(), team);
        group_norm_by(
            p,
            [&](int64_t group) {
              const auto m = ops::group_moments(attrs, stats.data(), group, C / kGroups);
              return GroupMoments{m.mean, m.variance};
            },
            scratch.data(), team);
      });
      at += pixels[r];
    }
  }
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << i;
}

}  // namespace
}  // namespace braid::cpu
