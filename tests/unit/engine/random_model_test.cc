// Models of random weights: what they hold, and what they cost.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "braid/base/error.h"
#include "braid/model/model.h"
#include "braid/model/model_shape.h"
#include "braid/ops/embedding.h"
#include "braid/tensor/quant.h"

namespace braid {
namespace {

using testing::Each;
using testing::HasSubstr;

// With every kind of weight: norms of rows and heads, biases, matrices of odd shapes.
ModelShape small(DType dtype = DType::f32) {
  ModelShape shape{.family = &kQwen3, .config = {}, .weight_dtype = dtype};
  ModelConfig& c = shape.config;
  c.family = "qwen3";
  c.layers = 2, c.C = 96, c.F = 130, c.V = 1009, c.Hq = 6, c.Hkv = 3, c.D = 16, c.context = 64;
  c.rope = {.head_dim = 16, .rotary_dim = 16};
  c.windows = {0, 0};
  c.qkv_bias = c.o_bias = c.mlp_bias = c.qk_norm = true;
  return shape;
}

ModelShape published(const char* name) {
  return read_model_shape(fmt::format("{}/../configs/{}.json", BRAID_TEST_DATA, name));
}

std::vector<float> floats(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.shape.elems()));
  dequantize_row(view.dtype, view.data, values.data(), view.shape.elems());
  return values;
}

// Pages of address space that the process has, touched or not.
int64_t pages() {
  int64_t n = 0;
  std::ifstream("/proc/self/statm") >> n;
  return n;
}

TEST(RandomWeights, DependOnTheSeedAndTheTensorAlone) {
  const RandomWeights one(small(), 7), again(small(), 7), other(small(), 8);
  std::vector<std::vector<float>> matrices;
  for (const auto& [name, tensor] : one.tensors()) matrices.push_back(floats(one.get(name)));
  auto it = one.tensors().rbegin();  // asked for in another order
  for (size_t i = matrices.size(); i-- > 0; ++it) {
    EXPECT_EQ(floats(again.get(it->first)), matrices[i]) << it->first;
    EXPECT_EQ(floats(other.get(it->first)) == matrices[i], it->second.shape.rank() == 1)
        << it->first;
  }
  EXPECT_NE(floats(one.get("layers.0.attn.k")), floats(one.get("layers.0.attn.v")));
  EXPECT_NE(floats(one.get("layers.0.attn.k")), floats(one.get("layers.1.attn.k")));
  EXPECT_EQ(one.get("token_embd").data, one.get("token_embd").data) << "made once";
}

TEST(RandomWeights, AreRoundedToTheirDtype) {
  const RandomWeights wide(small(), 7);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const RandomWeights narrow(small(dtype), 7);
    const TensorView view = narrow.get("layers.1.mlp.down");
    ASSERT_EQ(view.dtype, dtype);
    const std::vector<float> exact = floats(wide.get("layers.1.mlp.down"));
    std::vector<std::byte> rounded(static_cast<size_t>(view.bytes()));
    quantize_row(dtype, exact.data(), rounded.data(), view.shape.elems());
    EXPECT_EQ(std::memcmp(rounded.data(), view.data, rounded.size()), 0);
  }
}

TEST(RandomWeights, NormsAreOnesAndBiasesZeros) {
  const RandomWeights weights(small(DType::bf16), 1);
  for (const char* name : {"layers.0.attn_norm", "layers.1.mlp_norm", "output_norm",
                           "layers.0.attn.q_norm", "layers.1.attn.k_norm"}) {
    EXPECT_THAT(floats(weights.get(name)), Each(1.f)) << name;
  }
  for (const char* name : {"layers.0.attn.q.bias", "layers.1.attn.o.bias", "layers.0.mlp.gate.bias",
                           "layers.1.mlp.down.bias"}) {
    EXPECT_THAT(floats(weights.get(name)), Each(0.f)) << name;
  }
}

// Normal, with a deviation of 0.02: moments, tails, and no relation between neighbours or rows.
TEST(RandomWeights, MatricesAreNormal) {
  const RandomWeights weights(small(), 1);
  const std::vector<float> x = floats(weights.get("token_embd"));
  const auto n = static_cast<double>(x.size());
  double moments[5] = {}, beside = 0, below = 0, two_sigma = 0;
  for (size_t i = 0; i + 96 < x.size(); ++i) {
    const double z = x[i] / 0.02;
    for (int p = 1; p < 5; ++p) moments[p] += std::pow(z, p) / n;
    beside += z * (x[i + 1] / 0.02) / n;
    below += z * (x[i + 96] / 0.02) / n;
    two_sigma += std::abs(z) > 2 ? 1 / n : 0;
  }
  const double error = 5 / std::sqrt(n);  // five deviations of a mean
  EXPECT_NEAR(moments[1], 0, error);
  EXPECT_NEAR(moments[2], 1, error * std::sqrt(2));
  EXPECT_NEAR(moments[3], 0, error * std::sqrt(15));
  EXPECT_NEAR(moments[4], 3, error * std::sqrt(96));
  EXPECT_NEAR(beside, 0, error);
  EXPECT_NEAR(below, 0, error);
  EXPECT_NEAR(two_sigma, 0.0455, error * 0.21);
}

// Blocks: every integer as likely as the others, with the same deviation; vectors are f32.
TEST(RandomWeights, BlocksDeviateAsMuch) {
  for (const DType dtype : {DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0,
                            DType::q4_k, DType::q5_k, DType::q6_k}) {
    SCOPED_TRACE(name(dtype));
    ModelShape shape = small(dtype);
    shape.config.C = 256, shape.config.F = 512, shape.config.D = 128;
    const RandomWeights weights(shape, 7), again(shape, 7);
    const TensorView view = weights.get("layers.1.mlp.down");
    ASSERT_EQ(view.dtype, dtype);
    const std::vector<float> x = floats(view);
    EXPECT_EQ(x, floats(again.get("layers.1.mlp.down")));
    const auto n = static_cast<double>(x.size());
    double mean = 0, squares = 0, step = 1;
    for (size_t i = 0; i < x.size(); ++i) {
      const double z = x[i] / 0.02;
      mean += z / n, squares += z * z / n;
      if (const double apart = std::abs(x[i] - x[0]) / 0.02; apart > 1e-6)
        step = std::min(step, apart);
    }
    EXPECT_NEAR(mean, 0, step / 2 + 5 / std::sqrt(n));  // integers of even count have no middle
    EXPECT_NEAR(squares, 1, step * step / 4 + 0.01);
    EXPECT_EQ(weights.get("layers.0.attn_norm").dtype, DType::f32);
    EXPECT_THAT(floats(weights.get("layers.0.attn.q.bias")), Each(0.f));
  }
}

TEST(RandomWeights, RefuseWhatTheyCannotDraw) {
  const std::pair<DType, const char*> refused[] = {
      {DType::i32, "random weights of type i32"},
      {DType::q4_0, "mlp.down: rows of 130 elements are no whole blocks of q4_0 (32)"},
      {DType::q6_k, "rows of 96 elements are no whole blocks of q6_k (256)"}};
  for (const auto& [dtype, line] : refused) {
    try {
      RandomWeights(small(dtype), 1);
      ADD_FAILURE() << "accepted " << name(dtype);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(),
                dtype == DType::i32 ? ErrorCode::kUnsupported : ErrorCode::kInvalidArgument);
      EXPECT_THAT(e.what(), HasSubstr(line));
    }
  }
  try {
    RandomWeights(small(), 1).get("layers.2.attn.q");
    ADD_FAILURE() << "there is no layer 2";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kNotFound);
    EXPECT_THAT(e.what(), HasSubstr("no weight 'layers.2.attn.q'"));
  }
}

TEST(RandomModel, OfAPublishedShapeHasItsParametersAndTakesNoMemory) {
  const int64_t before = pages();
  for (const auto& [name, parameters] : {std::pair{"llama-2-7b", 6738415616},
                                         {"llama-3-8b", 8030261248},
                                         {"qwen3-8b", 8190735360},
                                         {"llama-3.3-70b", 70553706496}}) {
    const Model model(published(name), 1);
    EXPECT_EQ(model.parameters(), parameters) << name;
    EXPECT_EQ(model.weight_bytes(), 2 * parameters) << name;
    EXPECT_EQ(model.default_kv_dtype(), DType::bf16);
    const Program program = model.forward({{512, 8, 8}, 1024, 16, 128, DType::bf16, DType::bf16});
    EXPECT_GT(program.ops.size(), 300u);
  }
  EXPECT_LT((pages() - before) * 4096, 64 << 20) << "of 186 GB of weights";
}

TEST(RandomModel, HasWeightsAndNoFile) {
  const Model model(small(DType::f16), 3);
  ASSERT_NE(model.random(), nullptr);
  EXPECT_THROW(model.file(), std::logic_error);
  EXPECT_EQ(&model.family(), &kQwen3);
  EXPECT_EQ(model.default_kv_dtype(), DType::f16);
  const Program program = model.forward({{4, 2, 2}, 8, 4, 2, DType::f16});
  int64_t parameters = 0, weights = 0;
  for (const Value& value : program.values) {
    if (value.kind != ValueKind::weight) continue;
    const TensorView view = model.weight(value.name);
    EXPECT_EQ(view.shape, value.type.shape) << value.name;
    EXPECT_EQ(view.dtype, value.type.dtype) << value.name;
    parameters += view.shape.elems();
    ++weights;
  }
  EXPECT_EQ(parameters, model.parameters());
  EXPECT_EQ(weights, static_cast<int64_t>(model.random()->tensors().size()));
}

// Where rows are tokens nothing picks them.
TEST(RandomModel, PicksRowsWhereSomeAreLeftOut) {
  const Model model(small(DType::f16), 3);
  const auto picks = [&](const Extents& capacity, bool every_row) {
    const Program program = model.forward({.capacity = capacity,
                                           .pages = 8,
                                           .page_size = 4,
                                           .pages_per_sequence = 2,
                                           .kv_dtype = DType::f16,
                                           .every_row = every_row});
    EXPECT_EQ(program.value(program.outputs.at(0)).type.shape, (Shape{capacity.row, 1009}));
    return std::ranges::count(program.ops, &ops::kGatherRows, &Op::def);
  };
  EXPECT_EQ(picks({1, 1, 1}, true), 0);
  EXPECT_EQ(picks({4, 4, 4}, true), 0);
  EXPECT_EQ(picks({4, 4, 4}, false), 1);
  EXPECT_EQ(picks({4, 2, 2}, false), 1);
}

// One matrix is both the embedding and the head.
TEST(RandomModel, SharesATiedHead) {
  ModelShape shape = small();
  const Model untied(shape, 1);
  shape.config.tied_head = true;
  const Model tied(shape, 1);
  EXPECT_EQ(tied.parameters(), untied.parameters() - 1009 * 96);
  EXPECT_EQ(tied.weight_bytes(), untied.weight_bytes() - 1009 * 96 * 4);
  EXPECT_EQ(tied.weight("lm_head").data, tied.weight("token_embd").data);
  EXPECT_EQ(floats(tied.random()->get("lm_head")), floats(tied.weight("token_embd")));
  EXPECT_NE(floats(untied.weight("lm_head")), floats(untied.weight("token_embd")));
}

}  // namespace
}  // namespace braid
