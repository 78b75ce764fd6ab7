// Attention without a cache, by each of its kernels.
#include "backend/cuda/dense/op_case.h"
#include "braid/ops/dense_attention.h"

namespace braid::cuda::test {
namespace {

struct Draw {
  ops::DenseAttentionAttrs attrs;
  std::vector<ValueType> in;
};

// A call of random sizes with up to `parts` parts.
Draw draw(std::mt19937& random, DType dtype, int64_t head_dim, int parts, bool extras) {
  const auto pick = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  Draw d{{.head_dim = head_dim,
          .batch = pick(1, 3),
          .q_parts = static_cast<int>(pick(1, parts)),
          .kv_parts = static_cast<int>(pick(1, parts))},
         {}};
  ops::DenseAttentionAttrs& a = d.attrs;
  a.scale = 1 / std::sqrt(static_cast<float>(head_dim));
  const int64_t kv_heads = pick(1, 3), heads = kv_heads * pick(1, 2);
  a.causal = pick(0, 2) == 0;
  if (a.causal) a.kv_parts = a.q_parts;
  int64_t queries = 0, keys = 0;
  std::vector<int64_t> rows;
  for (int i = 0; i < a.q_parts; ++i) {
    rows.push_back(pick(1, 200));
    queries += rows.back();
    d.in.push_back({dtype, {a.batch * rows.back(), heads * head_dim}});
  }
  std::vector<ValueType> k;
  for (int i = 0; i < a.kv_parts; ++i) {
    const int64_t n = a.causal ? rows[static_cast<size_t>(i)] : pick(1, 250);
    keys += n;
    k.push_back({dtype, {a.batch * n, kv_heads * head_dim}});
  }
  d.in.insert(d.in.end(), k.begin(), k.end());
  d.in.insert(d.in.end(), k.begin(), k.end());
  const bool bias = extras && pick(0, 1) == 0, key_len = extras && pick(0, 1) == 0;
  d.in.push_back(bias ? ValueType{DType::f32, {heads, queries, keys}} : kAbsent);
  d.in.push_back(key_len ? ValueType{DType::i32, {a.batch}} : kAbsent);
  return d;
}

TEST(CudaDense, PlainAttention) {
  REQUIRE_DEVICE();
  std::mt19937 random(7);
  for (uint32_t seed = 0; seed < 48; ++seed) {
    const int64_t head_dim = std::array<int64_t, 6>{64, 5, 16, 33, 128, 512}[seed % 6];
    const DType dtype = std::array{DType::f32, DType::bf16, DType::f16}[seed / 6 % 3];
    const Draw d = draw(random, dtype, head_dim, 3, true);
    check({&ops::kDenseAttention, Attrs::of(d.attrs), d.in, dtype == DType::f32 ? 3e-5 : 2e-2},
          seed);
  }
}

// Weights of the sum are rounded to the type of the values, and so is the result.
TEST(CudaDense, SegmentAttention) {
  REQUIRE_DEVICE();
  std::mt19937 random(8);
  for (uint32_t seed = 0; seed < 24; ++seed) {
    const int64_t head_dim = std::array<int64_t, 4>{64, 128, 96, 256}[seed % 4];
    const DType dtype = seed / 4 % 2 == 0 ? DType::bf16 : DType::f16;
    const Draw d = draw(random, dtype, head_dim, 3, false);
    check({&ops::kDenseAttention, Attrs::of(d.attrs), d.in, 2e-2, "dense_attention.segments"},
          seed);
  }
}

// One wide head, as in the middle of an autoencoder, by products of matrices.
TEST(CudaDense, RowsOfWideHeads) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (auto [batch, queries, keys] :
       {std::array{1, 300, 300}, {2, 264, 501}, {1, 4200, 41}, {1, 70, 2000}, {1, 8, 33001}}) {
    const ValueType q{DType::bf16, {batch * queries, 512}}, k{DType::bf16, {batch * keys, 512}};
    // Among many keys few stand out, so that the result is no mean near 0.
    const ops::DenseAttentionAttrs attrs{
        .head_dim = 512, .batch = batch, .scale = (keys > 1000 ? 4 : 1) / std::sqrt(512.f)};
    check({&ops::kDenseAttention,
           Attrs::of(attrs),
           {q, k, k, kAbsent, kAbsent},
           2e-2,
           fmt::format("dense_attention.{} rows", std::min(queries, 4096))},
          seed++);
  }
}

}  // namespace
}  // namespace braid::cuda::test
