// Norms, residuals, activations, rotations and moves of networks without a KV cache.
#include "backend/cuda/dense/op_case.h"
#include "braid/ops/concat.h"
#include "braid/ops/layer_norm.h"
#include "braid/ops/linear.h"
#include "braid/ops/linear_unary.h"
#include "braid/ops/norm.h"
#include "braid/ops/norm_rope_table.h"
#include "braid/ops/relative_bias.h"
#include "braid/ops/rope_table.h"
#include "braid/ops/timestep.h"
#include "braid/ops/unary.h"

namespace braid::cuda::test {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::f16, DType::bf16};
constexpr double kExact = 0x1p-149;  // moves compute nothing

TEST(CudaDense, LayerNorm) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (DType x : kFloats) {
    for (DType y : kFloats) {
      for (int64_t batch : {1, 3}) {
        for (int64_t rows : {1, 5, 140}) {
          for (int64_t C : {1, 7, 16, 48, 100, 3072, 8200}) {
            const ValueType in{x, {batch * rows, C}}, m{DType::f32, {batch, 2 * C + 8}};
            const ValueType w{DType::bf16, {C}}, b{DType::f32, {C}};
            check({&ops::kLayerNorm,
                   Attrs::of(ops::LayerNormAttrs{
                       .group = C, .scale_column = C + 4, .shift_column = rows % 5, .dtype = y}),
                   {in, kAbsent, kAbsent, m}},
                  seed++);
            if (rows == 140) continue;
            check({&ops::kLayerNorm,
                   Attrs::of(ops::LayerNormAttrs{.group = C, .dtype = y}),
                   {in, w, b, kAbsent}},
                  seed++);
          }
        }
      }
    }
  }
  // By head, with a scale alone.
  check({&ops::kLayerNorm,
         Attrs::of(ops::LayerNormAttrs{.eps = 1e-5f, .group = 24, .scale_column = 1}),
         {{DType::f32, {6, 72}}, {DType::f32, {24}}, kAbsent, {DType::f32, {2, 80}}}},
        seed);
}

TEST(CudaDense, GatedAdd) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (DType a : kFloats) {
    for (DType b : kFloats) {
      for (int64_t batch : {1, 2}) {
        for (int64_t C : {1, 9, 64, 129, 3072}) {
          for (int64_t column : {0, 2, 4}) {
            check({&ops::kGatedAdd,
                   Attrs::of(ops::GatedAddAttrs{.gate_column = column}),
                   {{a, {batch * 300, C}}, {b, {batch * 300, C}}, {DType::f32, {batch, C + 4}}}},
                  seed++);
          }
        }
      }
    }
  }
}

// Where a result leaves the range of f16, the largest numbers of its sign are stored.
TEST(CudaDense, F16EndsAtItsLargestNumbers) {
  REQUIRE_DEVICE();
  constexpr DType kF16 = DType::f16;
  uint32_t seed = 1;
  for (int64_t C : {9, 64, 3072}) {
    const ValueType x{kF16, {300, C}}, m{DType::f32, {1, C}}, w{DType::f32, {C}};
    const auto ends = [&](const OpDef& def, Attrs attrs, std::vector<ValueType> in, float magnitude,
                          double tolerance) {
      check({.def = &def,
             .attrs = std::move(attrs),
             .in = std::move(in),
             .tolerance = tolerance,
             .magnitude = magnitude},
            seed++);
    };
    ends(ops::kGatedAdd, Attrs::of(ops::GatedAddAttrs{}), {x, x, m}, 8000, 1e-3);
    ends(ops::kAdd, {}, {x, x}, 14000, 1e-3);
    for (DType from : {kF16, DType::f32}) {
      const ValueType y{from, {300, C}};
      ends(ops::kLayerNorm,
           Attrs::of(ops::LayerNormAttrs{.group = C, .scale_column = 0, .dtype = kF16}),
           {y, kAbsent, kAbsent, m}, 8000, 1e-2);
      ends(ops::kRmsNorm, Attrs::of(ops::RmsNormAttrs{.group = C, .dtype = kF16}), {y, w}, 8000,
           1e-2);
    }
  }
  // Sums of products that nearly cancel: their error is the products'.
  constexpr float kRoot = 300;
  for (int64_t D : {16, 64}) {
    check({.def = &ops::kRopeTable,
           .attrs = Attrs::of(ops::RopeTableAttrs{.head_dim = D, .batch = 1}),
           .in = {{kF16, {90, 3 * D}}, {DType::f32, {90, D}}},
           .tolerance = 0.1,
           .magnitude = kRoot},
          seed++);
  }
  const ValueType q{kF16, {70, 3 * 64}}, w{DType::f32, {64}};
  const ops::NormRopeTableAttrs attrs{.rope = {.head_dim = 64, .batch = 1}, .dtype = kF16};
  check({.def = &ops::kNormRopeTable,
         .attrs = Attrs::of(attrs),
         .in = {q, w, q, w, {DType::f32, {70, 64}}},
         .tolerance = 0.1,
         .magnitude = kRoot},
        seed);
}

TEST(CudaDense, Unary) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (DType x : kFloats) {
    for (auto function : {ops::UnaryFunction::silu, ops::UnaryFunction::gelu_tanh,
                          ops::UnaryFunction::quick_gelu}) {
      for (const Shape& shape : {Shape{1, 1}, {3, 5}, {7, 64}, {300, 1000}}) {
        check({&ops::kUnary, Attrs::of(ops::UnaryAttrs{function}), {{x, shape}}}, seed++);
      }
    }
  }
}

TEST(CudaDense, RopeTable) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (DType x : kFloats) {
    for (int64_t batch : {1, 2}) {
      for (auto [head, rotary] : {std::pair{16, 2}, {16, 12}, {16, 16}, {24, 24}, {128, 128}}) {
        check({&ops::kRopeTable,
               Attrs::of(ops::RopeTableAttrs{.head_dim = head, .batch = batch, .first = 3}),
               {{x, {batch * 90, 3 * head}}, {DType::f32, {50, rotary}}}},
              seed++);
      }
    }
  }
}

TEST(CudaDense, Concat) {
  REQUIRE_DEVICE();
  for (DType x : kFloats) {
    for (int64_t C : {5, 8, 1024}) {
      check({&ops::kConcatRows,
             Attrs::of(ops::SequenceRowsAttrs{2}),
             {{x, {6, C}}, {x, {2, C}}, {x, {80, C}}},
             kExact},
            1);
      check({&ops::kConcatColumns, {}, {{x, {60, C}}, {x, {60, 1}}, {x, {60, 7 * C}}}, kExact}, 2);
      check({&ops::kTakeRows,
             Attrs::of(ops::TakeRowsAttrs{.batch = 3, .begin = 2, .rows = 4}),
             {{x, {21, C}}},
             kExact},
            3);
      check({&ops::kReshapeRows, Attrs::of(ops::ReshapeRowsAttrs{3 * C}), {{x, {21, C}}}, kExact},
            4);
    }
  }
}

TEST(CudaDense, Tables) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (int64_t dim : {2, 7, 256}) {
    for (bool cosines : {false, true}) {
      check({&ops::kTimestepEmbedding,
             Attrs::of(ops::TimestepEmbeddingAttrs{.dim = dim, .cosines_first = cosines}),
             {{DType::f32, {5}}},
             1e-6},
            seed++);
    }
  }
  for (DType x : {DType::f32, DType::bf16, DType::f16}) {
    for (int64_t length : {1, 9, 300}) {
      check({&ops::kRelativeBias,
             Attrs::of(ops::RelativeBiasAttrs{.length = length}),
             {{x, {32, 3}}},
             kExact},
            seed++);
    }
  }
}

// A gelu behind a product, whose columns stand right of others. The library's tanh is good to bf16.
TEST(CudaDense, LinearUnary) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (DType dtype : {DType::bf16, DType::f16}) {
    const ops::LinearUnaryAttrs attrs{.dtype = dtype};
    for (auto [rows, K, N] :
         {std::array{1, 16, 8}, {77, 64, 40}, {300, 256, 512}, {1100, 72, 96}}) {
      const ValueType x{dtype, {rows, K}}, w{dtype, {N, K}}, bias{dtype, {N}};
      for (const ValueType& front : {kAbsent, ValueType{dtype, {rows, 24}}}) {
        check({&ops::kLinearUnary, Attrs::of(attrs), {x, w, bias, front}, 4e-2}, seed++);
      }
    }
  }
}

TEST(CudaDense, NormRopeTable) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (DType x : {DType::bf16, DType::f16}) {
    for (int64_t D : {64, 128, 256}) {
      for (int64_t batch : {1, 2}) {
        for (auto [heads, kv_heads] : {std::pair{1, 1}, {24, 24}, {10, 3}}) {
          const ops::NormRopeTableAttrs attrs{.rope = {.head_dim = D, .batch = batch, .first = 3},
                                              .dtype = x};
          const ValueType w{seed % 2 == 0 ? DType::f32 : x, {D}};
          check({&ops::kNormRopeTable,
                 Attrs::of(attrs),
                 {{x, {batch * 70, heads * D}},
                  w,
                  {x, {batch * 70, kv_heads * D}},
                  w,
                  {DType::f32, {50, D}}}},
                seed++);
        }
      }
    }
  }
}

// Without a batch axis, what is f32 is multiplied in f32.
TEST(CudaDense, LinearOfF32IsExact) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (int64_t rows : {1, 7, 150}) {
    for (int64_t K : {16, 36, 500}) {
      const ValueType w{DType::f32, {28, K}}, bias{DType::f32, {28}};
      check({&ops::kLinear,
             Attrs::of(ops::LinearAttrs{.n = 2}),
             {{DType::f32, {rows, K}}, w, w, bias, kAbsent},
             2e-5},
            seed++);
    }
  }
}

// Without a batch axis, what is f16 is multiplied in f16, and f32 beside weights in f16 is rounded
// to f16: rounding to bf16 would be eight times as coarse.
TEST(CudaDense, LinearOfF16) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (DType x : {DType::f16, DType::f32}) {
    for (DType y : {DType::f16, DType::f32}) {
      for (int64_t rows : {1, 7, 150}) {
        for (int64_t K : {16, 40, 512}) {
          const ValueType w{DType::f16, {24, K}}, bias{DType::f16, {24}};
          const double sum = std::sqrt(static_cast<double>(K));
          check({&ops::kLinear,
                 Attrs::of(ops::LinearAttrs{.n = 2, .dtype = y}),
                 {{x, {rows, K}}, w, w, bias, kAbsent},
                 4 * sum * (x == DType::f16 ? 1e-6 : 0x1p-11)},
                seed++);
        }
      }
    }
  }
}

TEST(CudaDense, Add) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (DType a : kFloats) {
    for (const Shape& shape : {Shape{1, 1}, {3, 5}, {300, 1000}}) {
      check({&ops::kAdd, {}, {{a, shape}, {a, shape}}}, seed++);
    }
  }
}

TEST(CudaDense, RmsNormByHead) {
  REQUIRE_DEVICE();
  uint32_t seed = 1;
  for (DType x : kFloats) {
    for (DType y : kFloats) {
      for (int64_t group : {5, 64, 128}) {
        check({&ops::kRmsNorm,
               Attrs::of(ops::RmsNormAttrs{.eps = 1e-6f, .group = group, .dtype = y}),
               {{x, {70, 3 * group}}, {DType::bf16, {group}}}},
              seed++);
      }
    }
  }
}

}  // namespace
}  // namespace braid::cuda::test
