// conv3d's reference: steps over frames and pixels say the same as frames and pixels written out.
#include "braid/ops/conv3d.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>
#include <random>

#include "braid/base/error.h"

namespace braid {
namespace {

using Floats = std::vector<float>;

constexpr int64_t kIn = 3, kOut = 4;

TensorView view(Floats& data, const Shape& shape) {
  return make_view(reinterpret_cast<std::byte*>(data.data()), DType::f32, shape);
}

struct Video {
  int64_t T, H, W, C;
  Floats x;  // [T * H * W, C]
};

// Frames `of` f, rows and columns `at` i.
Video picked(const Video& v, int64_t T, const std::function<int64_t(int64_t)>& of, int64_t H,
             int64_t W, const std::function<int64_t(int64_t)>& at) {
  Video y{T, H, W, v.C, {}};
  for (int64_t i = 0; i < T * H * W; ++i) {
    const int64_t frame = of(i / W / H), row = at(i / W % H), column = at(i % W);
    const auto from = v.x.begin() + ((((frame * v.H) + row) * v.W) + column) * v.C;
    y.x.insert(y.x.end(), from, from + v.C);
  }
  return y;
}

class Conv3d : public testing::Test {
 protected:
  Floats random(int64_t n) {
    std::normal_distribution<float> normal;
    Floats x(static_cast<size_t>(n));
    for (float& v : x) v = normal(random_);
    return x;
  }
  Video video(int64_t frames) { return {frames, 4, 5, kIn, random(frames * 4 * 5 * kIn)}; }

  Video convolved(const Video& v, ops::Conv3dAttrs a, const Video* before = nullptr) {
    a.height = v.H;
    a.width = v.W;
    a.padding = 1;
    const Shape shape = {a.out_frames(v.T) * a.out_height() * a.out_width(), kOut};
    Video y{a.out_frames(v.T), a.out_height(), a.out_width(), kOut, {}};
    y.x.assign(static_cast<size_t>(shape.elems()), std::numeric_limits<float>::quiet_NaN());
    Floats x = v.x, w = w_, b = before ? before->x : Floats();
    std::vector<TensorView> in = {
        view(x, {v.T * v.H * v.W, kIn}), view(w, {kOut, kIn, 3, 3, 3}), {}, {}, {}};
    if (before) in[4] = view(b, {before->T * v.H * v.W, kIn});
    const std::vector<TensorView> out = {view(y.x, shape)};
    std::vector<ValueType> types;
    for (const TensorView& t : in) types.push_back({t.dtype, t.shape});
    const Op op{.def = &ops::kConv3d, .attrs = Attrs::of(a)};
    EXPECT_EQ(ops::kConv3d.infer(op.attrs, types)[0].shape, shape);
    BatchPart part;
    ops::kConv3d.reference({.op = &op, .in = in, .out = out, .part = &part});
    return y;
  }

  std::mt19937 random_{static_cast<uint32_t>(testing::UnitTest::GetInstance()->random_seed())};
  Floats w_ = random(kOut * kIn * 27);
};

void expect_equal(const Video& x, const Video& y) {
  EXPECT_EQ((std::array{x.T, x.H, x.W}), (std::array{y.T, y.H, y.W}));
  ASSERT_EQ(x.x.size(), y.x.size());
  for (size_t i = 0; i < x.x.size(); ++i) ASSERT_FLOAT_EQ(x.x[i], y.x[i]) << i;
}

TEST_F(Conv3d, StridesSkipFramesAndPixels) {
  const Video v = video(5), before = video(3);
  for (const Video* b : {static_cast<const Video*>(nullptr), &before}) {
    const Video all = convolved(v, {}, b);
    for (const int64_t stride : {2, 3}) {
      for (const int64_t frames : {1, 2, 3}) {
        expect_equal(convolved(v, {.stride = stride, .frame_stride = frames}, b),
                     picked(
                         all, (5 + frames - 1) / frames, [&](int64_t f) { return f * frames; },
                         (4 + stride - 1) / stride, (5 + stride - 1) / stride,
                         [&](int64_t i) { return i * stride; }));
      }
    }
  }
}

TEST_F(Conv3d, UpsamplingRepeatsFramesAndPixels) {
  const Video v = video(3), before = video(2);
  for (const bool first_once : {false, true}) {
    for (const int64_t n : {1, 2, 3}) {
      for (const int64_t up : {1, 2}) {
        const auto of_pixel = [&](int64_t i) { return i / up; };
        const int64_t lacks = first_once ? n - 1 : 0;
        const Video x = picked(
            v, (3 * n) - lacks, [&](int64_t f) { return (f + lacks) / n; }, 4 * up, 5 * up,
            of_pixel);
        const Video b = picked(
            before, 2 * n, [&](int64_t f) { return f / n; }, 4 * up, 5 * up, of_pixel);
        const ops::Conv3dAttrs a{.upsample = up, .frame_upsample = n, .first_once = first_once};
        expect_equal(convolved(v, a), convolved(x, {}));
        expect_equal(convolved(v, a, &before), convolved(x, {}, &b));
      }
    }
  }
}

// Rows of a part are the rows of the whole.
TEST_F(Conv3d, SomeRows) {
  const Video v = video(3);
  ops::Conv3dAttrs a{.upsample = 2, .frame_upsample = 2};
  const Video all = convolved(v, a);
  a.first_row = 3;
  a.rows = 4;
  Video wanted{6, 4, 10, kOut, {}};
  for (int64_t f = 0; f < 6; ++f) {
    const auto from = all.x.begin() + ((f * 8) + 3) * 10 * kOut;
    wanted.x.insert(wanted.x.end(), from, from + 4 * 10 * kOut);
  }
  expect_equal(convolved(v, a), wanted);
}

TEST_F(Conv3d, RefusesWhatDoesNotFit) {
  const ValueType x{DType::f32, {12, kIn}}, w{DType::f32, {kOut, kIn, 3, 3, 3}};
  const auto infer = [&](const ValueType& before, const ops::Conv3dAttrs& attrs) {
    const std::vector<ValueType> in = {x, w, {}, {}, before};
    ops::kConv3d.infer(Attrs::of(attrs), in);
  };
  const ValueType one{DType::f32, {6, kIn}};
  EXPECT_NO_THROW(infer({}, {.height = 2, .width = 3, .padding = 1}));
  EXPECT_THROW(infer(one, {.height = 2, .width = 3, .padding = 1}), Error);
  EXPECT_NO_THROW(infer(one, {.height = 2, .width = 3, .padding = 1, .frame_upsample = 2}));
  EXPECT_THROW(infer({}, {.height = 2, .width = 3, .padding = 1, .first_row = 1, .rows = 2}),
               Error);
  EXPECT_NO_THROW(
      infer({}, {.height = 2, .width = 3, .padding = 1, .upsample = 2, .first_row = 1, .rows = 2}));
  EXPECT_THROW(infer({}, {.height = 5, .width = 3, .padding = 1}), Error);
}

}  // namespace
}  // namespace braid
