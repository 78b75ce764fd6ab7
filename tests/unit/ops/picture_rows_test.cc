// Ops over a picture whose rows ranks divide: their shapes and refusals, and that a convolution of
// some rows gives these rows of the whole.
#include "braid/ops/picture_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "braid/base/error.h"
#include "braid/ops/conv2d.h"

namespace braid::ops {
namespace {

ValueType f32(const Shape& shape) {
  return {DType::f32, shape};
}

std::string refused(const OpDef& def, const Attrs& attrs, const std::vector<ValueType>& in) {
  try {
    def.infer(attrs, in);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    return e.what();
  }
  return "no error";
}

TEST(PictureRows, Shapes) {
  const auto halo = [](int rank) {
    return kWithHalo
        .infer(Attrs::of(WithHaloAttrs{5, rank, 3}), std::vector{f32({15, 4}), f32({30, 4})})[0]
        .shape;
  };
  EXPECT_EQ(halo(0), Shape({20, 4}));
  EXPECT_EQ(halo(1), Shape({25, 4}));
  EXPECT_EQ(halo(2), Shape({20, 4}));
  EXPECT_EQ(kEdgeRows.infer(Attrs::of(EdgeRowsAttrs{5}), std::vector{f32({15, 4})})[0].shape,
            Shape({10, 4}));
  // Two frames of three rows.
  EXPECT_EQ(kEdgeRows.infer(Attrs::of(EdgeRowsAttrs{5, 2}), std::vector{f32({30, 4})})[0].shape,
            Shape({20, 4}));
  EXPECT_EQ(
      kWithHalo
          .infer(Attrs::of(WithHaloAttrs{5, 1, 3, 2}), std::vector{f32({30, 4}), f32({60, 4})})[0]
          .shape,
      Shape({50, 4}));
  EXPECT_THAT(refused(kEdgeRows, Attrs::of(EdgeRowsAttrs{5, 2}), {f32({15, 4})}),
              testing::HasSubstr("rows of 5 pixels in 2 frames"));
  EXPECT_THAT(refused(kEdgeRows, Attrs::of(EdgeRowsAttrs{4}), {f32({15, 4})}),
              testing::HasSubstr("rows of 4 pixels"));
  EXPECT_THAT(refused(kGroupStats, Attrs::of(GroupStatsAttrs{3}), {f32({15, 4})}),
              testing::HasSubstr("3 groups"));
}

// A norm with a halo writes the rows of with_halo.
TEST(PictureRows, NormsWithHalo) {
  GroupNormByAttrs by{{.groups = 2}, {15, 15, 15}, WithHaloAttrs{5, 1, 3}};
  std::vector<ValueType> in = {f32({15, 4}), f32({4}), f32({4}), f32({3, 4}), f32({30, 4})};
  EXPECT_EQ(kGroupNormBy.infer(Attrs::of(by), in)[0].shape, Shape({25, 4}));
  EXPECT_EQ(moves_of(by, 15)[1].to, 5);
  in[4] = f32({20, 4});
  EXPECT_THAT(refused(kGroupNormBy, Attrs::of(by), in), testing::HasSubstr("edges"));
  by.halo->frames = 3;
  EXPECT_THAT(refused(kGroupNormBy, Attrs::of(by), in), testing::HasSubstr("a halo of 3 frames"));
  by.halo.reset();
  in[4] = {};
  EXPECT_EQ(kGroupNormBy.infer(Attrs::of(by), in)[0].shape, Shape({15, 4}));
}

TEST(PictureRows, AConvolutionOfSomeRows) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const auto draw = [&](int64_t n) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) v = normal(random);
    return x;
  };
  for (int64_t upsample : {1, 2}) {
    Conv2dAttrs attrs{.height = 5, .width = 3, .padding = 1, .upsample = upsample};
    auto x = draw(5 * 3 * 2), w = draw(4 * 2 * 9);
    const auto run = [&](const Conv2dAttrs& a) {
      const std::vector<ValueType> types = {f32({15, 2}), f32({4, 2, 3, 3}), {}, {}};
      const Shape shape = kConv2d.infer(Attrs::of(a), types)[0].shape;
      std::vector<float> y(static_cast<size_t>(shape.elems()), 1e9f);
      const auto view = [](std::vector<float>& v, const Shape& s) {
        return make_view(reinterpret_cast<std::byte*>(v.data()), DType::f32, s);
      };
      const TensorView in[] = {view(x, {15, 2}), view(w, {4, 2, 3, 3}), {}, {}};
      const TensorView out[] = {view(y, shape)};
      const Op op{.def = &kConv2d, .attrs = Attrs::of(a)};
      BatchPart part;
      kConv2d.reference({.op = &op, .in = in, .out = out, .part = &part});
      return y;
    };
    const auto whole = run(attrs);
    attrs.first_row = upsample;
    attrs.rows = 3 * upsample;
    const auto rows = run(attrs);
    const int64_t row = 3 * upsample * 4;
    const auto begin = whole.begin() + (attrs.first_row * row);
    EXPECT_EQ(rows, std::vector<float>(begin, begin + (attrs.rows * row)));
    attrs.rows = 5 * upsample;
    EXPECT_THAT(refused(kConv2d, Attrs::of(attrs), {f32({15, 2}), f32({4, 2, 3, 3}), {}, {}}),
                testing::HasSubstr("rows"));
  }
}

}  // namespace
}  // namespace braid::ops
