// Convolutions and group norms.
#include "backend/cuda/dense/op_case.h"
#include "braid/ops/conv2d.h"
#include "braid/ops/conv3d.h"
#include "braid/ops/group_norm.h"
#include "braid/ops/latent_scale.h"
#include "braid/ops/picture_rows.h"

namespace braid::cuda::test {
namespace {

DType weights_of(uint32_t seed) {
  return seed % 2 == 0 ? DType::f32 : DType::bf16;
}

// Of sums of `products` products of normal numbers; weights are rounded to the type of x.
double tolerance(DType x, DType w, int64_t products) {
  const double rounded = x == DType::bf16 && w == DType::f32 ? 0x1p-8 : 1e-6;
  return 4 * std::sqrt(static_cast<double>(products)) * rounded;
}

// Tensor cores cut a running sum and 16 products toward zero where the last place of the largest of
// them is: in all by at most six such places, 2^-23 of the sum each. Over a sum of n products of
// normal numbers, running sums average to at most 3.5 sqrt(n), six deviations of a walk's area, so
// cuts add up to n / 16 * 6 * 2^-23 * 3.5 sqrt(n). A missing product, 0.6 in the mean, is larger.
double cuts_of_sum(DType x, int64_t products) {
  return x == DType::f32 ? 0 : 6 * 3.5 / 16 * 0x1p-23 * std::pow(products, 1.5);
}

void check_conv(DType dtype, const ops::Conv2dAttrs& a, int64_t C, int64_t O, int64_t k,
                bool residual, uint32_t seed) {
  const ValueType w{weights_of(seed), {O, C, k, k}};
  const int64_t pixels = a.batch * a.out_height(k) * a.out_width(k);
  check({&ops::kConv2d,
         Attrs::of(a),
         {{dtype, {a.batch * a.height * a.width, C}},
          w,
          seed % 3 == 0 ? kAbsent : ValueType{DType::f32, {O}},
          residual ? ValueType{dtype, {pixels, O}} : kAbsent},
         tolerance(dtype, w.dtype, C * k * k),
         {},
         true,
         1,
         {},
         cuts_of_sum(dtype, C * k * k)},
        seed);
}

TEST(CudaImage, Conv2d) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (auto [C, O] : {std::pair{1, 1}, {3, 5}, {16, 512}, {64, 3}, {64, 130}, {128, 65}}) {
      for (auto [height, width] : {std::pair{1, 1}, {7, 5}, {9, 33}}) {
        for (int64_t batch : {1, 2}) {
          const ops::Conv2dAttrs a{.batch = batch, .height = height, .width = width, .padding = 1};
          check_conv(dtype, a, C, O, 3, seed % 2 == 0, seed);
          ++seed;
        }
      }
    }
    ops::Conv2dAttrs a{.height = 6, .width = 11, .padding = 1, .upsample = 2, .silu = true};
    check_conv(dtype, a, 64, 72, 3, true, seed++);
    check_conv(dtype, a, 8, 8, 3, false, seed++);
    a = {.batch = 2, .height = 9, .width = 10, .stride = 2, .padding = 1};
    check_conv(dtype, a, 128, 40, 3, true, seed++);
    a = {.height = 6, .width = 21, .padding = 1, .first_row = 1, .rows = 4};  // between halos
    check_conv(dtype, a, 64, 130, 3, true, seed++);
    check_conv(dtype, a, 8, 8, 3, true, seed++);
    a = {.height = 6, .width = 11, .padding = 1, .upsample = 2, .first_row = 2, .rows = 10};
    check_conv(dtype, a, 64, 72, 3, true, seed++);
    a = {.height = 5, .width = 70};
    check_conv(dtype, a, 192, 256, 1, true, seed++);
  }
}

// Patches of every shape, whole and cut at each edge; one, two and three tiles of channels, whole
// runs of channels and parts of runs.
TEST(CudaImage, Conv2dOfOddPictures) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (auto [height, width] : {std::pair{1, 1},
                               {35, 1},
                               {33, 7},
                               {18, 15},
                               {5, 17},
                               {17, 33},
                               {2, 129},
                               {3, 62},
                               {32, 8},
                               {1, 300}}) {
    for (int64_t O : {3, 32, 64, 72, 96, 128, 256, 288}) {
      const ops::Conv2dAttrs a{.batch = 1 + seed % 3,
                               .height = height,
                               .width = width,
                               .padding = 1,
                               .silu = seed % 4 == 1};
      check_conv(DType::bf16, a, 64, O, 3, seed % 2 == 0, seed);
      ++seed;
    }
  }
  for (auto [height, width] : {std::pair{1, 1}, {7, 17}, {20, 9}, {3, 65}}) {
    for (int64_t O : {40, 128, 256}) {
      for (int64_t upsample : {2, 3}) {
        ops::Conv2dAttrs a{.batch = 1 + seed % 2,
                           .height = height,
                           .width = width,
                           .padding = 1,
                           .upsample = upsample};
        check_conv(DType::bf16, a, 64, O, 3, seed % 3 == 0, seed);
        ++seed;
        if (height < 3) continue;
        a.first_row = upsample, a.rows = (height - 2) * upsample - seed % 2;  // between halos
        check_conv(DType::bf16, a, 64, O, 3, seed % 2 == 0, seed);
        ++seed;
      }
    }
  }
  for (auto [padding, k] : {std::pair{0, 3}, {2, 5}, {2, 3}, {0, 1}}) {
    const ops::Conv2dAttrs a{.batch = 3, .height = 19, .width = 21, .padding = padding};
    check_conv(DType::bf16, a, 128, 128, k, true, seed++);
    check_conv(DType::bf16, a, 128, 256, k, true, seed++);
  }
}

// More tiles than an H100 has SMs, so that CTAs take a second one; blocks of channels end in the
// midst of the stages. Pairs of CTAs share channels, or with two tiles of channels, pixels.
TEST(CudaImage, Conv2dOfManyTiles) {
  REQUIRE_DEVICE();
  for (int64_t O : {64, 128, 256}) {
    check_conv(DType::bf16, {.height = 200, .width = 190}, 192, O, 1, true, 7);
  }
  check_conv(DType::bf16, {.batch = 5, .height = 65, .width = 63, .padding = 1}, 64, 160, 3, true,
             8);
}

// Causal convolutions: without frames before, with as many as the kernel reads, and with more.
TEST(CudaImage, Conv3d) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (auto [C, O] : {std::pair{3, 5}, {16, 72}, {64, 3}, {64, 130}, {128, 65}, {64, 128}}) {
      for (int64_t frames : {1, 2, 5}) {
        for (int64_t before : {0, 2, 3}) {
          const bool part = seed % 4 < 2;  // rows 1 and 2 of 4
          const ops::Conv3dAttrs a{.height = 4,
                                   .width = seed % 3 == 0 ? 18 : 7,
                                   .padding = 1,
                                   .first_row = part ? 1 : 0,
                                   .rows = part ? 2 : 0,
                                   .silu = before == 2};
          const int64_t frame = a.height * a.width;
          const ValueType w{weights_of(seed), {O, C, 3, 3, 3}};
          check({&ops::kConv3d,
                 Attrs::of(a),
                 {{dtype, {frames * frame, C}},
                  w,
                  seed % 3 == 0 ? kAbsent : ValueType{DType::f32, {O}},
                  seed % 5 < 2 ? ValueType{dtype, {frames * a.out_height() * a.width, O}} : kAbsent,
                  before == 0 ? kAbsent : ValueType{dtype, {before * frame, C}}},
                 tolerance(dtype, w.dtype, 27 * C),
                 {},
                 true,
                 1,
                 {},
                 cuts_of_sum(dtype, 27 * C)},
                seed);
          ++seed;
        }
      }
      const ValueType point{weights_of(seed), {O, C, 1, 1, 1}};
      check({&ops::kConv3d,
             Attrs::of(ops::Conv3dAttrs{.height = 9, .width = 13}),
             {{dtype, {3 * 9 * 13, C}}, point, {DType::bf16, {O}}, kAbsent, kAbsent},
             tolerance(dtype, point.dtype, C),
             {},
             true,
             1,
             {},
             cuts_of_sum(dtype, C)},
            seed++);
    }
  }
}

// Strides and repeated pixels and frames, by every kernel: f32, channels beyond blocks, one and two
// blocks of channels.
TEST(CudaImage, Conv3dOfSteps) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (auto [C, O, dtype] : {std::tuple{17, 5, DType::f32},
                             {24, 65, DType::bf16},
                             {64, 40, DType::bf16},
                             {64, 128, DType::bf16},
                             {128, 128, DType::bf16}}) {
    for (auto [stride, upsample] : {std::pair{1, 1}, {2, 1}, {1, 2}, {3, 2}}) {
      for (auto [frame_stride, frame_upsample] :
           {std::pair{1, 2}, {2, 1}, {1, 3}, {3, 2}, {2, 4}}) {
        const int64_t frames = 1 + seed % 4, before = seed % 5 < 2 ? 0 : 2 + seed % 2;
        const int64_t Kt = seed % 7 == 0 ? 1 : 3;
        ops::Conv3dAttrs a{.height = 5,
                           .width = seed % 3 == 0 ? 18 : 7,
                           .stride = stride,
                           .padding = 1,
                           .upsample = upsample,
                           .frame_stride = frame_stride,
                           .frame_upsample = frame_upsample,
                           .first_once = seed % 2 == 0,
                           .silu = seed % 3 == 1};
        if (seed % 4 == 1 && stride == 1) a.first_row = 1, a.rows = a.out_size(a.height) - 2;
        const int64_t frame = a.height * a.width;
        const int64_t pixels = a.out_frames(frames) * a.out_height() * a.out_width();
        const ValueType w{weights_of(seed), {O, C, Kt, 3, 3}};
        check({&ops::kConv3d,
               Attrs::of(a),
               {{dtype, {frames * frame, C}},
                w,
                seed % 3 == 0 ? kAbsent : ValueType{DType::f32, {O}},
                seed % 5 < 3 ? ValueType{dtype, {pixels, O}} : kAbsent,
                before == 0 ? kAbsent : ValueType{dtype, {before * frame, C}}},
               tolerance(dtype, w.dtype, 9 * Kt * C),
               {},
               true,
               1,
               {},
               cuts_of_sum(dtype, 9 * Kt * C)},
              seed);
        ++seed;
      }
    }
  }
}

TEST(CudaImage, LatentScale) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (DType latent : {DType::f32, DType::bf16}) {
      for (auto [frames, latents] :
           {std::pair{1, 1}, {3, 3}, {5, 3}, {9, 3}, {4, 2}, {8, 2}, {2, 1}}) {
        for (int64_t up : {1, 4}) {
          const int64_t C = seed % 2 == 0 ? 9 : 64;
          const ValueType small{latent, {latents * 15, C}};
          check({&ops::kLatentScale,
                 Attrs::of(ops::LatentScaleAttrs{.height = 3 * up,
                                                 .width = 5 * up,
                                                 .latent_height = 3,
                                                 .latent_width = 5,
                                                 .silu = seed % 3 != 0}),
                 {{dtype, {frames * 15 * up * up, C}}, small, small}},
                seed);
          ++seed;
        }
      }
    }
  }
}

TEST(CudaImage, GroupNorm) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (auto [C, groups] : {std::pair{4, 4}, {8, 2}, {96, 32}, {128, 32}, {512, 32}, {6, 2}}) {
      for (int64_t pixels : {1, 35, 3000}) {
        for (int64_t batch : {1, 2}) {
          check({&ops::kGroupNorm,
                 Attrs::of(
                     ops::GroupNormAttrs{.batch = batch, .groups = groups, .silu = seed % 2 == 0}),
                 {{dtype, {batch * pixels, C}}, {DType::f32, {C}}, {DType::bf16, {C}}},
                 2e-5},
                seed);
          ++seed;
        }
      }
    }
  }
}

// A picture whose rows ranks divide.
TEST(CudaImage, PictureRows) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (auto [C, groups] : {std::pair{4, 4}, {96, 32}, {6, 2}}) {
      for (auto [rows, width] : {std::pair{1, 7}, {3, 35}, {40, 100}}) {
        const ValueType x{dtype, {rows * width, C}};
        for (int64_t frames : {1, 3}) {
          const ValueType all{dtype, {frames * rows * width, C}};
          check({&ops::kEdgeRows, Attrs::of(ops::EdgeRowsAttrs{width, frames}), {all}, 0}, seed++);
          for (int rank : {0, 1, 2}) {
            check({&ops::kWithHalo,
                   Attrs::of(ops::WithHaloAttrs{width, rank, 3, frames}),
                   {all, {dtype, {6 * frames * width, C}}},
                   0},
                  seed++);
          }
        }
        check({&ops::kGroupStats,
               Attrs::of(ops::GroupStatsAttrs{groups}),
               {x},
               1e-6 * static_cast<double>(rows * width * C)},
              seed++);
        // Random statistics of enough pixels to keep each variance positive.
        for (int rank : {-1, 0, 1, 2}) {
          ops::GroupNormByAttrs by{{.groups = groups, .eps = 0.01f, .silu = rank % 2 == 0},
                                   {5'000'000'000, 50, 7'000'000'000},
                                   {}};
          if (rank >= 0) by.halo = ops::WithHaloAttrs{width, rank, 3};
          check({&ops::kGroupNormBy,
                 Attrs::of(by),
                 {x,
                  {DType::f32, {C}},
                  {DType::bf16, {C}},
                  {DType::f32, {3, 2 * groups}},
                  rank < 0 ? kAbsent : ValueType{dtype, {6 * width, C}}},
                 2e-5},
                seed++);
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid::cuda::test
