// References of the ops of pictures: strides, upsampling and what is done at the end say the same
// in other words. Goldens compare them with torch.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "braid/base/error.h"
#include "braid/ops/conv2d.h"
#include "braid/ops/group_norm.h"
#include "braid/ops/relative_bias.h"

namespace braid {
namespace {

using Floats = std::vector<float>;

Floats random_floats(std::mt19937& random, int64_t n) {
  std::normal_distribution<float> normal;
  Floats x(static_cast<size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

TensorView view(Floats& data, const Shape& shape) {
  return make_view(reinterpret_cast<std::byte*>(data.data()), DType::f32, shape);
}

struct Picture {
  int64_t B, H, W, C;
  Floats x;  // [B * H * W, C]
};

// conv2d's reference, shapes from its own rule.
Picture convolved(const Picture& p, Floats w, const Shape& w_shape, ops::Conv2dAttrs attrs,
                  Floats* bias = nullptr, Floats* residual = nullptr) {
  attrs.batch = p.B;
  attrs.height = p.H;
  attrs.width = p.W;
  Picture y{p.B, attrs.out_size(p.H, w_shape[2]), attrs.out_size(p.W, w_shape[3]), w_shape[0], {}};
  y.x.assign(static_cast<size_t>(y.B * y.H * y.W * y.C), std::numeric_limits<float>::quiet_NaN());
  Op op{.def = &ops::kConv2d, .attrs = Attrs::of(attrs)};
  Floats x = p.x;
  std::vector<TensorView> in = {view(x, {p.B * p.H * p.W, p.C}), view(w, w_shape), {}, {}};
  if (bias) in[2] = view(*bias, {y.C});
  if (residual) in[3] = view(*residual, {y.B * y.H * y.W, y.C});
  const std::vector<TensorView> out = {view(y.x, {y.B * y.H * y.W, y.C})};
  std::vector<ValueType> types;
  for (const TensorView& v : in) types.push_back({v.dtype, v.shape});
  EXPECT_EQ(ops::kConv2d.infer(op.attrs, types)[0].shape, out[0].shape);
  BatchPart part;
  ops::kConv2d.reference({.op = &op, .in = in, .out = out, .part = &part});
  return y;
}

// Each pixel n times in both directions; every n-th pixel.
Picture repeated(const Picture& p, int64_t n) {
  Picture y{p.B, p.H * n, p.W * n, p.C, {}};
  for (int64_t i = 0; i < y.B * y.H * y.W; ++i) {
    const int64_t row = i / y.W % y.H / n, column = i % y.W / n, picture = i / y.W / y.H;
    const auto from = p.x.begin() + (((picture * p.H) + row) * p.W + column) * p.C;
    y.x.insert(y.x.end(), from, from + p.C);
  }
  return y;
}
Picture every(const Picture& p, int64_t n) {
  Picture y{p.B, (p.H + n - 1) / n, (p.W + n - 1) / n, p.C, {}};
  for (int64_t i = 0; i < y.B * y.H * y.W; ++i) {
    const int64_t row = i / y.W % y.H * n, column = i % y.W * n, picture = i / y.W / y.H;
    const auto from = p.x.begin() + (((picture * p.H) + row) * p.W + column) * p.C;
    y.x.insert(y.x.end(), from, from + p.C);
  }
  return y;
}

void expect_equal(const Picture& x, const Picture& y) {
  ASSERT_EQ(x.x.size(), y.x.size());
  EXPECT_EQ(x.H, y.H);
  EXPECT_EQ(x.W, y.W);
  for (size_t i = 0; i < x.x.size(); ++i) ASSERT_FLOAT_EQ(x.x[i], y.x[i]) << i;
}

class Conv2d : public testing::Test {
 protected:
  std::mt19937 random_{static_cast<uint32_t>(testing::UnitTest::GetInstance()->random_seed())};
  Picture p_{2, 5, 7, 3, random_floats(random_, 2 * 5 * 7 * 3)};
  Floats w_ = random_floats(random_, 4 * 3 * 3 * 3);
};

TEST_F(Conv2d, SumsOverTheKernel) {
  const Picture p{1, 2, 2, 1, {1, 2, 3, 4}};
  const Floats w = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
  const Picture y = convolved(p, w, {1, 1, 3, 3}, {.padding = 1});
  EXPECT_EQ(y.x[0], 10000 * 1 + 100000 * 2 + 10000000 * 3 + 100000000.f * 4);
  EXPECT_EQ(y.x[3], 1 * 1 + 10 * 2 + 1000 * 3 + 10000 * 4);
}

TEST_F(Conv2d, StridesSkipPixels) {
  for (const int64_t stride : {2, 3}) {
    expect_equal(convolved(p_, w_, {4, 3, 3, 3}, {.stride = stride, .padding = 1}),
                 every(convolved(p_, w_, {4, 3, 3, 3}, {.padding = 1}), stride));
  }
}

TEST_F(Conv2d, UpsamplingRepeatsPixels) {
  for (const int64_t n : {2, 3}) {
    expect_equal(convolved(p_, w_, {4, 3, 3, 3}, {.padding = 1, .upsample = n}),
                 convolved(repeated(p_, n), w_, {4, 3, 3, 3}, {.padding = 1}));
  }
}

TEST_F(Conv2d, EndsWithBiasThenSiluThenResidual) {
  Picture y = convolved(p_, w_, {4, 3, 3, 3}, {.padding = 1});
  Floats bias = random_floats(random_, 4);
  Floats residual = random_floats(random_, std::ssize(y.x));
  for (size_t i = 0; i < y.x.size(); ++i) {
    const double sum = double{y.x[i]} + bias[i % 4];
    y.x[i] = static_cast<float>(sum / (1 + std::exp(-sum)) + residual[i]);
  }
  const Picture z = convolved(p_, w_, {4, 3, 3, 3}, {.padding = 1, .silu = true}, &bias, &residual);
  for (size_t i = 0; i < y.x.size(); ++i) ASSERT_NEAR(z.x[i], y.x[i], 1e-5) << i;
}

TEST_F(Conv2d, RefusesWhatDoesNotFit) {
  const auto infer = [](std::vector<ValueType> in, const ops::Conv2dAttrs& attrs) {
    ops::kConv2d.infer(Attrs::of(attrs), in);
  };
  const ValueType x{DType::f32, {6, 3}}, w{DType::f32, {4, 3, 3, 3}};
  const ops::Conv2dAttrs attrs{.height = 2, .width = 3, .padding = 1};
  EXPECT_NO_THROW(infer({x, w, {}, {}}, attrs));
  EXPECT_THROW(infer({x, {DType::f32, {4, 2, 3, 3}}, {}, {}}, attrs), Error);
  EXPECT_THROW(infer({x, {DType::f32, {4, 27}}, {}, {}}, attrs), Error);
  EXPECT_THROW(infer({x, w, {DType::f32, {3}}, {}}, attrs), Error);
  EXPECT_THROW(infer({x, w, {}, {DType::f32, {6, 3}}}, attrs), Error);
  EXPECT_THROW(infer({{DType::f32, {5, 3}}, w, {}, {}}, attrs), Error);
  EXPECT_THROW(infer({x, w, {}, {}}, {.height = 2, .width = 3}), Error);
}

TEST(GroupNorm, HasMeanZeroAndVarianceOneInEachGroup) {
  std::mt19937 random(static_cast<uint32_t>(testing::UnitTest::GetInstance()->random_seed()));
  const int64_t B = 2, P = 30, C = 6, groups = 3;
  Floats x = random_floats(random, B * P * C), w(C, 1), b(C, 0);
  for (float& v : x) v = 5 + 3 * v;
  Floats y(x.size(), std::numeric_limits<float>::quiet_NaN());
  Op op{.def = &ops::kGroupNorm,
        .attrs = Attrs::of(ops::GroupNormAttrs{.batch = B, .groups = groups})};
  const std::vector<TensorView> in = {view(x, {B * P, C}), view(w, {C}), view(b, {C})};
  const std::vector<TensorView> out = {view(y, {B * P, C})};
  BatchPart part;
  ops::kGroupNorm.reference({.op = &op, .in = in, .out = out, .part = &part});
  for (int64_t picture = 0; picture < B; ++picture) {
    for (int64_t g = 0; g < groups; ++g) {
      double sum = 0, squares = 0;
      for (int64_t p = 0; p < P; ++p) {
        for (int64_t c = 2 * g; c < 2 * g + 2; ++c) {
          const double v = y[static_cast<size_t>((((picture * P) + p) * C) + c)];
          sum += v;
          squares += v * v;
        }
      }
      EXPECT_NEAR(sum / (2 * P), 0, 1e-5);
      EXPECT_NEAR(squares / (2 * P), 1, 1e-4);
    }
  }
}

}  // namespace
}  // namespace braid
