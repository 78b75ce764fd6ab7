#include "braid/ops/norm_linear.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "braid/ops/fusion.h"
#include "braid/tensor/quant.h"

namespace braid {
namespace {

using testing::ElementsAre;
using testing::Not;

std::vector<std::string_view> kinds(const Program& program) {
  std::vector<std::string_view> result;
  for (const Op& op : program.ops) result.push_back(op.def->kind);
  return result;
}

// A norm and its product, in every form that the fused op has.
struct Form {
  int64_t T = 2, K = 33, N = 5;
  bool adds = false, gated = false, bias = false;
  DType dtype = DType::f32;   // of x = norm(a [+ b]) and y
  DType weight = DType::f32;  // of W
  int n = 1;
};

std::string to_string(const Form& f) {
  return fmt::format("T {} K {} N {}{}{}{} n {}, {} of {}", f.T, f.K, f.N, f.adds ? " add" : "",
                     f.gated ? " gated" : "", f.bias ? " bias" : "", f.n, name(f.dtype),
                     name(f.weight));
}

Program program_of(const Form& f) {
  Builder b("t", {.token = f.T, .sequence = 1, .row = 1});
  ValueId x = b.input("a", {DType::f32, {f.T, f.K}, BatchAxis::token});
  const ValueId sum =
      f.adds ? ops::add(b, x, b.input("b", {DType::bf16, {f.T, f.K}, BatchAxis::token})) : kNoValue;
  if (f.adds) x = sum;
  const ValueId w = b.weight("w", {f.dtype, {f.K}});
  x = ops::rms_norm(b, x, w, {.eps = 1e-3f, .group = f.K, .dtype = f.dtype});
  std::vector<ops::LinearWeights> weights;
  for (int i = 0; i < f.n; ++i) {
    const int64_t N = f.gated ? f.N : f.N + i;
    const ValueId W = b.weight(fmt::format("W{}", i), {f.weight, {N, f.K}});
    const bool bias = f.bias && (f.gated || i != 1);
    weights.push_back({W, bias ? b.weight(fmt::format("b{}", i), {f.dtype, {N}}) : kNoValue});
  }
  std::vector<ValueId> y = ops::linears(b, x, weights, f.dtype);
  if (f.gated) y = {ops::gated(b, y[0], y[1], {ops::Activation::gelu_tanh})};
  if (f.adds) y.insert(y.begin(), sum);
  return b.finish(y);
}

// What the references make of random data in `live` rows; every byte of it began as 0xff.
std::vector<std::vector<std::byte>> run(const Program& program, int64_t live, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<std::vector<std::byte>> memory;
  for (const Value& value : program.values) {
    const auto elems = static_cast<size_t>(value.type.shape.elems());
    std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(value.type)), std::byte{0xff});
    std::vector<float> data(elems);
    for (float& x : data) x = normal(rng);
    if (value.kind != ValueKind::computed) {
      quantize_row(value.type.dtype, data.data(), bytes.data(), value.type.shape.elems());
    }
    memory.push_back(std::move(bytes));
  }
  const auto views = [&](const std::vector<ValueId>& ids) {
    std::vector<TensorView> result(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == kNoValue) continue;
      const ValueType& type = program.value(ids[i]).type;
      result[i] = make_view(memory[static_cast<size_t>(ids[i])].data(), type.dtype, type.shape);
    }
    return result;
  };
  BatchPart part = {{}, {.token = live, .sequence = 1, .row = 1}};
  for (const Op& op : program.ops) {
    const auto in = views(op.inputs), out = views(op.outputs);
    op.def->reference({&op, in, out, program.value(op.inputs[0]).type.axis, &part});
  }
  std::vector<std::vector<std::byte>> outputs;
  for (ValueId id : program.outputs) outputs.push_back(memory[static_cast<size_t>(id)]);
  return outputs;
}

template <class F>
void for_each_form(F&& f) {
  for (const bool adds : {false, true}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const bool bias : {false, true}) {
        for (const int n : {1, 2, 3}) f(Form{.adds = adds, .bias = bias, .dtype = dtype, .n = n});
        f(Form{.adds = adds, .gated = true, .bias = bias, .dtype = dtype, .n = 2});
      }
    }
  }
}

TEST(NormLinear, GivesTheBitsOfItsParts) {
  const uint64_t seed = std::random_device{}();
  for_each_form([&](Form form) {
    for (const int64_t K : {1, 7, 96}) {
      for (const int64_t N : {1, 19}) {
        form.K = K, form.N = N, form.T = K == 96 ? 4 : 3, form.weight = form.dtype;
        if (K == 96 && !form.gated) form.weight = DType::q8_0;
        SCOPED_TRACE(fmt::format("{}, seed {}", to_string(form), seed));
        const Program parts = fuse(program_of(form), fusions());
        const Program whole = fuse(parts, few_token_fusions());
        ASSERT_THAT(kinds(parts), ElementsAre(form.adds ? "add_rms_norm" : "rms_norm",
                                              form.gated ? "gated_linear" : "linear"));
        ASSERT_THAT(kinds(whole), ElementsAre("norm_linear"));
        for (const int64_t live : {int64_t{1}, form.T}) {
          const auto y = run(whole, live, seed);
          EXPECT_EQ(y, run(parts, live, seed));
          if (N > 1) {
            EXPECT_NE(y, run(whole, live, seed + 1)) << "the outputs say nothing";
          }
          EXPECT_THAT(y.back(), testing::Contains(Not(std::byte{0xff}))) << "nothing was written";
        }
      }
    }
  });
}

TEST(NormLinear, InfersTheTypesOfItsParts) {
  for_each_form([&](const Form& form) {
    SCOPED_TRACE(to_string(form));
    const Program program = fuse(fuse(program_of(form), fusions()), few_token_fusions());
    ASSERT_EQ(program.ops.size(), 1u);
    std::vector<std::string> want;
    if (form.adds) want.push_back("f32[token=2, 33]");
    for (int i = 0; i < (form.gated ? 1 : form.n); ++i) {
      want.push_back(fmt::format("{}[token=2, {}]", name(form.dtype), 5 + i));
    }
    std::vector<std::string> types;
    const std::vector<ValueType> in = program.input_types(program.ops[0]);
    for (const ValueType& type : ops::kNormLinear.infer(program.ops[0].attrs, in)) {
      types.push_back(braid::to_string(type));
    }
    EXPECT_EQ(types, want);
  });
}

TEST(NormLinear, CostsNoPassOverX) {
  for_each_form([&](const Form& form) {
    SCOPED_TRACE(to_string(form));
    const Program parts = fuse(program_of(form), fusions());
    const Program whole = fuse(parts, few_token_fusions());
    const Work work = {.extents = {.token = 2, .sequence = 1, .row = 1}};
    const Cost both = whole.cost(whole.ops[0], work);
    const double x = 2.0 * 33 * info(form.dtype).block_bytes;
    EXPECT_EQ(both.bytes,
              parts.cost(parts.ops[0], work).bytes + parts.cost(parts.ops[1], work).bytes - 2 * x);
    EXPECT_EQ(both.wire_bytes, 0);
  });
}

}  // namespace
}  // namespace braid
