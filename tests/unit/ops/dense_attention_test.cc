// Dense attention's reference: parts, bias, key lengths and causality say the same in other words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "braid/ops/dense_attention.h"

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

struct Case {
  int64_t B = 2, Lq = 5, Lk = 7, H = 4, Hkv = 2, D = 6;
};

struct Operands {
  Operands(const Case& c, std::mt19937& random)
      : q(random_floats(random, c.B * c.Lq * c.H * c.D)),
        k(random_floats(random, c.B * c.Lk * c.Hkv * c.D)),
        v(random_floats(random, c.B * c.Lk * c.Hkv * c.D)) {}
  Floats q, k, v;
};

Floats attend(const Case& c, Operands& x, const ops::DenseAttentionAttrs& attrs, Floats* bias,
              std::vector<int32_t>* key_len) {
  Floats o(x.q.size(), std::numeric_limits<float>::quiet_NaN());
  Op op{.def = &ops::kDenseAttention, .attrs = Attrs::of(attrs)};
  std::vector<TensorView> in = {view(x.q, {c.B * c.Lq, c.H * c.D}),
                                view(x.k, {c.B * c.Lk, c.Hkv * c.D}),
                                view(x.v, {c.B * c.Lk, c.Hkv * c.D}),
                                {},
                                {}};
  if (bias) in[3] = view(*bias, {c.H, c.Lq, c.Lk});
  if (key_len) {
    in[4] = make_view(reinterpret_cast<std::byte*>(key_len->data()), DType::i32, {c.B});
  }
  const std::vector<TensorView> out = {view(o, {c.B * c.Lq, c.H * c.D})};
  BatchPart part;
  ops::kDenseAttention.reference({.op = &op, .in = in, .out = out, .part = &part});
  return o;
}

// Rows of the sequences that begin at row `begin` of each.
Floats rows(const Floats& x, int64_t B, int64_t L, int64_t C, int64_t begin, int64_t count) {
  Floats out;
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t i = 0; i < count * C; ++i) out.push_back(x[((b * L + begin) * C) + i]);
  }
  return out;
}

TEST(DenseAttention, IsSoftmaxOfScores) {
  const Case c{.B = 1, .Lq = 1, .Lk = 2, .H = 1, .Hkv = 1, .D = 2};
  std::mt19937 random(1);
  Operands x(c, random);
  x.q = {1, 2};
  x.k = {1, 0, 0, 1};
  x.v = {10, 20, 30, 40};
  const Floats o = attend(c, x, {.head_dim = 2, .scale = 0.5f}, nullptr, nullptr);
  const double a = std::exp(0.5), b = std::exp(1.0);  // scores 0.5 * 1, 0.5 * 2
  EXPECT_FLOAT_EQ(o[0], static_cast<float>((10 * a + 30 * b) / (a + b)));
  EXPECT_FLOAT_EQ(o[1], static_cast<float>((20 * a + 40 * b) / (a + b)));
}

TEST(DenseAttention, PartsAreOneSequence) {
  const Case c;
  std::mt19937 random(2);
  Operands x(c, random);
  const ops::DenseAttentionAttrs attrs{.head_dim = c.D, .batch = c.B, .scale = 0.3f};
  const Floats whole = attend(c, x, attrs, nullptr, nullptr);

  ops::DenseAttentionAttrs parted = attrs;
  parted.q_parts = parted.kv_parts = 2;
  Op op{.def = &ops::kDenseAttention, .attrs = Attrs::of(parted)};
  std::vector<Floats> data;
  const auto cut = [&](const Floats& from, int64_t L, int64_t C) {
    data.push_back(rows(from, c.B, L, C, 0, 2));
    data.push_back(rows(from, c.B, L, C, 2, L - 2));
  };
  cut(x.q, c.Lq, c.H * c.D);
  cut(x.k, c.Lk, c.Hkv * c.D);
  cut(x.v, c.Lk, c.Hkv * c.D);
  std::vector<TensorView> in;
  for (size_t i = 0; i < data.size(); ++i) {
    const int64_t C = (i < 2 ? c.H : c.Hkv) * c.D;
    in.push_back(view(data[i], {std::ssize(data[i]) / C, C}));
  }
  in.resize(8);
  Floats first(data[0].size()), second(data[1].size());
  const std::vector<TensorView> out = {view(first, in[0].shape), view(second, in[1].shape)};
  BatchPart part;
  ops::kDenseAttention.reference({.op = &op, .in = in, .out = out, .part = &part});
  EXPECT_EQ(first, rows(whole, c.B, c.Lq, c.H * c.D, 0, 2));
  EXPECT_EQ(second, rows(whole, c.B, c.Lq, c.H * c.D, 2, c.Lq - 2));
}

TEST(DenseAttention, KeyLengthIsABiasOfMinusInfinity) {
  const Case c;
  std::mt19937 random(3);
  Operands x(c, random);
  const ops::DenseAttentionAttrs attrs{.head_dim = c.D, .batch = c.B};
  Floats bias = random_floats(random, c.H * c.Lq * c.Lk);
  std::vector<int32_t> key_len = {3, 3};
  const Floats got = attend(c, x, attrs, &bias, &key_len);
  for (size_t i = 0; i < bias.size(); ++i) {
    if (static_cast<int64_t>(i) % c.Lk >= 3) bias[i] = -std::numeric_limits<float>::infinity();
  }
  EXPECT_EQ(got, attend(c, x, attrs, &bias, nullptr));
  key_len = {0, 7};  // the first sequence sees nothing
  const Floats none = attend(c, x, attrs, nullptr, &key_len);
  const Floats all = attend(c, x, attrs, nullptr, nullptr);
  for (int64_t i = 0; i < std::ssize(none); ++i) {
    EXPECT_EQ(none[i], i < c.Lq * c.H * c.D ? 0 : all[i]) << i;
  }
}

TEST(DenseAttention, CausalIsABiasOfMinusInfinity) {
  const Case c{.Lq = 6, .Lk = 6};
  std::mt19937 random(4);
  Operands x(c, random);
  ops::DenseAttentionAttrs attrs{.head_dim = c.D, .batch = c.B, .causal = true};
  const Floats got = attend(c, x, attrs, nullptr, nullptr);
  Floats bias(static_cast<size_t>(c.H * c.Lq * c.Lk));
  for (int64_t i = 0; i < std::ssize(bias); ++i) {
    if (i % c.Lk > i / c.Lk % c.Lq) bias[i] = -std::numeric_limits<float>::infinity();
  }
  attrs.causal = false;
  EXPECT_EQ(got, attend(c, x, attrs, &bias, nullptr));
}

TEST(DenseAttention, ShapeRuleNamesWhatIsWrong) {
  Builder b("t", {});
  const auto value = [&](const char* name, const Shape& shape) {
    return b.input(name, {DType::f32, shape});
  };
  const ValueId q = value("q", {10, 24}), k = value("k", {14, 12}), v = value("v", {14, 12});
  const auto error = [&](const ops::DenseAttentionInputs& in, ops::DenseAttentionAttrs attrs) {
    try {
      ops::dense_attention(b, in, attrs);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  using testing::HasSubstr;
  EXPECT_EQ(error({{q}, {k}, {v}}, {.head_dim = 6, .batch = 2}), "no error");
  EXPECT_THAT(error({{q}, {k}, {v}}, {.head_dim = 5}), HasSubstr("q is f32[10, 24], no whole"));
  EXPECT_THAT(error({{q}, {k}, {v}}, {.head_dim = 6, .batch = 3}),
              HasSubstr("no whole rows for each of 3 sequences"));
  EXPECT_THAT(error({{q}, {k}, {v}}, {.head_dim = 6, .causal = true}),
              HasSubstr("10 queries over 14 keys"));
  EXPECT_THAT(error({{q}, {k}, {v}, value("bias", {4, 5, 6})}, {.head_dim = 6, .batch = 2}),
              HasSubstr("bias is f32[4, 5, 6], wanted 7 in dimension 2"));
}

}  // namespace
}  // namespace braid
