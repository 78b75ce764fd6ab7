// Kernels of networks without a KV cache against their scalar references, through the kernel table.
#include "backend/cpu/op_case.h"
#include "braid/ops/concat.h"
#include "braid/ops/dense_attention.h"
#include "braid/ops/layer_norm.h"
#include "braid/ops/rope_table.h"
#include "braid/ops/unary.h"

namespace braid::cpu {
namespace {

using namespace testing;

TEST(DenseOps, LayerNorm) {
  uint32_t seed = 1;
  for (int64_t batch : {1, 3}) {
    for (int64_t rows : {1, 5}) {
      for (int64_t C : {1, 7, 16, 48, 100, 3072}) {
        const ValueType x = f32({batch * rows, C}), w = f32({C}), m = f32({batch, 2 * C + 5});
        const float eps = 1e-6f;
        check({&ops::kLayerNorm,
               Attrs::of(ops::LayerNormAttrs{
                   .eps = eps, .group = C, .scale_column = C + 5, .shift_column = 3}),
               {x, kAbsent, kAbsent, m}},
              seed++);
        check({&ops::kLayerNorm,
               Attrs::of(ops::LayerNormAttrs{.eps = eps, .group = C}),
               {x, w, w, kAbsent}},
              seed++);
      }
    }
  }
  // By head, with a scale alone.
  check({&ops::kLayerNorm,
         Attrs::of(ops::LayerNormAttrs{.eps = 1e-5f, .group = 24, .scale_column = 1}),
         {f32({6, 72}), f32({24}), kAbsent, f32({2, 80})}},
        seed);
}

TEST(DenseOps, GatedAdd) {
  uint32_t seed = 1;
  for (int64_t batch : {1, 2}) {
    for (int64_t C : {1, 9, 64, 129}) {
      const ValueType x = f32({batch * 3, C});
      check({&ops::kGatedAdd,
             Attrs::of(ops::GatedAddAttrs{.gate_column = 2}),
             {x, x, f32({batch, C + 4})}},
            seed++);
    }
  }
}

TEST(DenseOps, Unary) {
  uint32_t seed = 1;
  for (auto function :
       {ops::UnaryFunction::silu, ops::UnaryFunction::gelu_tanh, ops::UnaryFunction::quick_gelu}) {
    for (const Shape& shape : {Shape{1, 1}, {3, 5}, {7, 64}, {2, 1000}}) {
      check({&ops::kUnary, Attrs::of(ops::UnaryAttrs{function}), {f32(shape)}}, seed++);
    }
  }
}

TEST(DenseOps, RopeTable) {
  uint32_t seed = 1;
  for (int64_t batch : {1, 2}) {
    for (int64_t rotary : {2, 12, 16}) {
      check({&ops::kRopeTable,
             Attrs::of(ops::RopeTableAttrs{.head_dim = 16, .batch = batch, .first = 3}),
             {f32({batch * 9, 48}), f32({5, rotary})}},
            seed++);
    }
  }
}

TEST(DenseOps, Concat) {
  check({&ops::kConcatRows,
         Attrs::of(ops::SequenceRowsAttrs{2}),
         {f32({6, 5}), f32({2, 5}), f32({8, 5})},
         0x1p-149},
        1);
  check({&ops::kConcatColumns, {}, {f32({6, 5}), f32({6, 1}), f32({6, 70})}, 0x1p-149}, 2);
  check({&ops::kTakeRows,
         Attrs::of(ops::TakeRowsAttrs{.batch = 3, .begin = 2, .rows = 4}),
         {f32({21, 9})},
         0x1p-149},
        3);
  for (int64_t columns : {3, 21, 63}) {
    check({&ops::kReshapeRows, Attrs::of(ops::ReshapeRowsAttrs{columns}), {f32({21, 9})}, 0x1p-149},
          4);
  }
}

TEST(DenseOps, Attention) {
  std::mt19937 random(7);
  const auto pick = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (uint32_t seed = 0; seed < 40; ++seed) {
    ops::DenseAttentionAttrs a{
        .head_dim = std::array<int64_t, 6>{64, 5, 16, 33, 128, 512}[seed % 6],
        .batch = pick(1, 3),
        .q_parts = static_cast<int>(pick(1, 2)),
        .kv_parts = static_cast<int>(pick(1, 3))};
    a.scale = 1 / std::sqrt(static_cast<float>(a.head_dim));
    const int64_t kv_heads = pick(1, 3), group = pick(1, 2);
    a.causal = pick(0, 2) == 0;
    if (a.causal) a.kv_parts = a.q_parts;
    std::vector<ValueType> in;
    int64_t Lq = 0, Lk = 0;
    std::vector<int64_t> rows;
    for (int i = 0; i < a.q_parts; ++i) {
      rows.push_back(pick(1, 140));
      Lq += rows.back();
      in.push_back(f32({a.batch * rows.back(), kv_heads * group * a.head_dim}));
    }
    std::vector<ValueType> k;
    for (int i = 0; i < a.kv_parts; ++i) {
      const int64_t n = a.causal ? rows[static_cast<size_t>(i)] : pick(1, 150);
      Lk += n;
      k.push_back(f32({a.batch * n, kv_heads * a.head_dim}));
    }
    in.insert(in.end(), k.begin(), k.end());
    in.insert(in.end(), k.begin(), k.end());
    in.push_back(pick(0, 1) == 0 ? kAbsent : f32({kv_heads * group, Lq, Lk}));
    in.push_back(pick(0, 1) == 0 ? kAbsent : ValueType{DType::i32, {a.batch}});
    check({&ops::kDenseAttention, Attrs::of(a), in, 3e-5}, seed);
  }
}

}  // namespace
}  // namespace braid::cpu
