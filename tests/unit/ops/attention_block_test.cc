// attention_block: the ops that become a block, and equal bits of block and ops.
#include "braid/ops/attention_block.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "braid/tensor/quant.h"
#include "unit/parallel/decoder_program.h"

namespace braid {
namespace {

using testing::ElementsAre;

std::vector<std::string_view> kinds(const Program& program) {
  std::vector<std::string_view> result;
  for (const Op& op : program.ops) result.push_back(op.def->kind);
  return result;
}

struct Form {
  int64_t T = 2, C = 32, D = 16, kv_heads = 2, group = 3;
  bool adds = false, biases = false, normed_heads = false;
  int64_t window = 0;
};

std::string to_string(const Form& f) {
  return fmt::format("T {}, {} x {} heads{}{}{}, window {}", f.T, f.kv_heads, f.group,
                     f.adds ? ", add" : "", f.biases ? ", biases" : "",
                     f.normed_heads ? ", normed heads" : "", f.window);
}

// A layer's attention, T tokens of a sequence; other readers of `inner` where asked.
Program program_of(const Form& f, bool somebody_reads_q = false) {
  Builder b("t", {.token = f.T, .sequence = 1, .row = 1});
  const auto ints = [&](const char* name, const Shape& shape, BatchAxis axis) {
    return b.input(name, {DType::i32, shape, axis});
  };
  const auto weight = [&](const std::string& name, int64_t n, int64_t k) {
    return ops::LinearWeights{b.weight(name, {DType::bf16, {n, k}}),
                              f.biases ? b.weight(name + ".bias", {DType::f32, {n}}) : kNoValue};
  };
  ValueId x = b.input("a", {DType::f32, {f.T, f.C}, BatchAxis::token});
  if (f.adds) x = ops::add(b, x, b.input("b", {DType::bf16, {f.T, f.C}, BatchAxis::token}));
  const ValueId sum = x;
  const ValueId positions = ints("positions", {f.T}, BatchAxis::token);
  const ops::AttentionMeta meta = {
      ints("slots", {f.T}, BatchAxis::token), ints("q_start", {2}, BatchAxis::none),
      ints("kv_len", {1}, BatchAxis::sequence), ints("pages", {1, 2}, BatchAxis::sequence)};
  x = ops::rms_norm(b, x, b.weight("w", {DType::f32, {f.C}}),
                    {.eps = 1e-3f, .group = f.C, .dtype = DType::bf16});
  const int64_t heads = f.kv_heads * f.group;
  const auto qkv = ops::linears(b, x,
                                {weight("q", heads * f.D, f.C), weight("k", f.kv_heads * f.D, f.C),
                                 weight("v", f.kv_heads * f.D, f.C)},
                                DType::bf16);
  ValueId q = qkv[0], k = qkv[1];
  if (f.normed_heads) {
    const ops::RmsNormAttrs norm{.eps = 1e-4f, .group = f.D, .dtype = DType::bf16};
    q = ops::rms_norm(b, q, b.weight("q_norm", {DType::f32, {f.D}}), norm);
    k = ops::rms_norm(b, k, b.weight("k_norm", {DType::f32, {f.D}}), norm);
  }
  const ops::RopeAttrs rope = {.head_dim = f.D, .rotary_dim = f.D};
  q = ops::rope(b, q, positions, kNoValue, rope);
  k = ops::rope(b, k, positions, kNoValue, rope);
  const ValueType cache = {DType::bf16, {2, 16, f.kv_heads, f.D}};
  const ops::KvCache kv = {b.state("cache_k", cache), b.state("cache_v", cache)};
  ops::kv_append(b, k, qkv[2], meta, kv, f.D);
  const ValueId out = ops::attention(
      b, q, kv, meta, {.head_dim = f.D, .group = f.group, .scale = .3f, .window = f.window});
  std::vector<ValueId> outputs = {ops::linear(b, out, weight("o", f.C, heads * f.D), DType::bf16)};
  if (f.adds) outputs.push_back(sum);
  if (somebody_reads_q) outputs.push_back(qkv[0]);
  return b.finish(outputs);
}

Program parts_of(const Program& program) {
  return fuse(fuse(program, fusions()), few_token_fusions());
}

// What the references make of random data, with the caches; every other byte began as 0xff.
std::vector<std::vector<std::byte>> run(const Program& program, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  const auto T = program.value(program.ops[0].inputs[0]).type.shape[0];
  std::vector<std::vector<std::byte>> memory;
  for (const Value& value : program.values) {
    std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(value.type)), std::byte{0xff});
    if (value.kind != ValueKind::computed && value.type.dtype == DType::i32) {
      auto* ints = reinterpret_cast<int32_t*>(bytes.data());
      for (int64_t i = 0; i < value.type.shape.elems(); ++i) {
        const auto n = static_cast<int32_t>(i);
        // Twenty keys before the new ones; page 1 comes before page 0.
        ints[i] = value.name == "positions" ? 20 + n
                  : value.name == "slots"   ? 4 + n
                  : value.name == "q_start" ? n * static_cast<int32_t>(T)
                  : value.name == "kv_len"  ? 20 + static_cast<int32_t>(T)
                                            : 1 - n;
      }
    } else if (value.kind != ValueKind::computed) {
      std::vector<float> data(static_cast<size_t>(value.type.shape.elems()));
      for (float& x : data) x = normal(rng);
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
  BatchPart part = {{}, {.token = T, .sequence = 1, .row = 1}};
  for (const Op& op : program.ops) {
    const auto in = views(op.inputs), out = views(op.outputs);
    op.def->reference({&op, in, out, program.value(op.inputs[0]).type.axis, &part});
  }
  std::vector<std::vector<std::byte>> result;
  for (ValueId id : program.outputs) result.push_back(memory[static_cast<size_t>(id)]);
  for (size_t i = 0; i < memory.size(); ++i) {
    if (program.values[i].kind == ValueKind::state) result.push_back(memory[i]);
  }
  return result;
}

template <class F>
void for_each_form(F&& f) {
  for (int bits = 0; bits < 8; ++bits) {
    for (const int64_t T : {1, 4}) {
      for (const int64_t window : {0, 7}) {
        f(Form{.T = T,
               .adds = (bits & 1) != 0,
               .biases = (bits & 2) != 0,
               .normed_heads = (bits & 4) != 0,
               .window = window});
      }
    }
  }
}

TEST(AttentionBlock, GivesTheBitsOfItsParts) {
  const uint64_t seed = std::random_device{}();
  for_each_form([&](const Form& form) {
    SCOPED_TRACE(fmt::format("{}, seed {}", to_string(form), seed));
    const Program parts = parts_of(program_of(form));
    const Program attends = fuse(parts, ops::attention_block_fusions(false));
    const Program projects = fuse(parts, ops::attention_block_fusions(true));
    ASSERT_THAT(kinds(parts), ElementsAre("norm_linear", "rope_append", "attention", "linear"));
    ASSERT_THAT(kinds(attends), ElementsAre("attention_block", "linear"));
    ASSERT_THAT(kinds(projects), ElementsAre("attention_block"));
    const auto y = run(parts, seed);
    EXPECT_EQ(run(attends, seed), y);
    EXPECT_EQ(run(projects, seed), y);
    EXPECT_NE(run(projects, seed + 1), y) << "the outputs say nothing";
  });
}

TEST(AttentionBlock, FormsInEachLayerOfADecoder) {
  const Program parts = parts_of(testing_decoder::decoder(1, 2, DType::bf16));
  EXPECT_THAT(
      kinds(fuse(parts, ops::attention_block_fusions(true))),
      ElementsAre("embedding", "attention_block", "norm_linear", "linear", "attention_block",
                  "norm_linear", "linear", "add", "gather_rows", "norm_linear"));
}

// The norm of many tokens, and another rank's, stays apart.
TEST(AttentionBlock, WithoutItsNorm) {
  const uint64_t seed = std::random_device{}();
  for_each_form([&](const Form& form) {
    SCOPED_TRACE(fmt::format("{}, seed {}", to_string(form), seed));
    const Program parts = fuse(program_of(form), fusions());
    const Program attends = fuse(parts, ops::attention_block_fusions(false));
    const Program projects = fuse(parts, ops::attention_block_fusions(true));
    const char* norm = form.adds ? "add_rms_norm" : "rms_norm";
    ASSERT_THAT(kinds(attends), ElementsAre(norm, "attention_block", "linear"));
    ASSERT_THAT(kinds(projects), ElementsAre(norm, "attention_block"));
    EXPECT_FALSE(projects.ops[1].attrs.as<ops::AttentionBlockAttrs>().normed);
    const auto y = run(parts, seed);
    EXPECT_EQ(run(attends, seed), y);
    EXPECT_EQ(run(projects, seed), y);
  });
}

// Other readers: the parts stay.
TEST(AttentionBlock, LeavesWhatDoesNotFit) {
  const Program parts = parts_of(program_of({}, true));
  EXPECT_THAT(kinds(fuse(parts, ops::attention_block_fusions(true))),
              ElementsAre("norm_linear", "rope_append", "attention", "linear"));
  const Program many = parts_of(program_of({.T = kFewTokens + 1}));
  EXPECT_THAT(kinds(fuse(many, ops::attention_block_fusions(false))),
              ElementsAre("rms_norm", "attention_block", "linear"));
}

TEST(AttentionBlock, InfersAndPricesAsItsParts) {
  for_each_form([&](const Form& form) {
    SCOPED_TRACE(to_string(form));
    const Program parts = parts_of(program_of(form));
    const Program block = fuse(parts, ops::attention_block_fusions(true));
    const Op& op = block.ops[0];
    const std::vector<ValueType> in = block.input_types(op);
    const std::vector<ValueType> out = op.def->infer(op.attrs, in);
    ASSERT_EQ(out.size(), op.outputs.size());
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(braid::to_string(out[i]), braid::to_string(block.value(op.outputs[i]).type));
    }
    const Work work{{.token = form.T, .sequence = 1, .row = 1}, 20 * form.T, 20};
    const auto cost_of = [&](const Program& program) {
      Cost cost;
      for (const Op& o : program.ops) {
        std::vector<ValueType> out_types;
        for (const ValueId id : o.outputs) out_types.push_back(program.value(id).type);
        cost += o.def->cost(o.attrs, program.input_types(o), out_types, work);
      }
      return cost;
    };
    const Cost whole = cost_of(block), apart = cost_of(parts);
    EXPECT_LT(whole.bytes, apart.bytes);  // without values between the ops
    double weights = 0;
    for (const Value& value : block.values) {
      if (value.kind == ValueKind::weight) weights += static_cast<double>(bytes_of(value.type));
    }
    EXPECT_GT(whole.bytes, weights);
    EXPECT_NEAR(whole.flops, apart.flops, .02 * apart.flops);
  });
  const Program program = fuse(parts_of(program_of({})), ops::attention_block_fusions(true));
  std::vector<ValueType> in = program.input_types(program.ops[0]);
  in.pop_back();
  EXPECT_THROW(program.ops[0].def->infer(program.ops[0].attrs, in), Error);
}

}  // namespace
}  // namespace braid
