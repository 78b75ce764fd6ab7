// The ops of experts by their references: against plain products token by token, and what ranks add
// up to.
#include "braid/ops/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "braid/tensor/quant.h"

namespace braid {
namespace {

using testing::HasSubstr;

struct Sizes {
  int64_t T = 5, E = 4, k = 2, C = 7, F = 6;
  bool biased = false, shared = false, gated = false;
};

struct Block {
  Program program;
  ValueId y = kNoValue;
};

Block block(const Sizes& s, DType dtype = DType::f32) {
  Builder b("t", {.token = s.T, .sequence = 1, .row = 1, .expert_row = s.T * s.k});
  const ValueType x = {dtype, {s.T, s.C}, BatchAxis::token};
  const ValueId logits = b.input("logits", {DType::f32, {s.T, s.E}, BatchAxis::token});
  const ops::Route route = ops::route(b, logits, kNoValue, {.top_k = s.k});
  const auto weights = [&](const char* name, int64_t N, int64_t K) {
    return ops::LinearWeights{
        b.weight(name, {DType::f32, {s.E, N, K}}),
        s.biased ? b.weight(fmt::format("{}.bias", name), {DType::f32, {s.E, N}}) : kNoValue};
  };
  const ValueId y = ops::experts(
      b, b.input("x", x), route,
      {.gate = weights("gate", s.F, s.C),
       .up = weights("up", s.F, s.C),
       .down = weights("down", s.C, s.F)},
      ops::Activation::silu, s.shared ? b.input("shared", x) : kNoValue,
      s.gated ? b.input("shared_gate", {DType::f32, {s.T, 1}, BatchAxis::token}) : kNoValue);
  return {b.finish({y}), y};
}

using Memory = std::vector<std::vector<float>>;

Memory random_values(const Program& program, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  Memory memory;
  for (const Value& value : program.values) {
    std::vector<float> data(static_cast<size_t>(value.type.shape.elems()), NAN);
    for (float& x : data) x = value.kind == ValueKind::computed ? NAN : normal(rng);
    memory.push_back(std::move(data));
  }
  return memory;
}

// Runs the references over values of four bytes each.
void run(const Program& program, Memory& memory, int64_t live) {
  BatchPart part{{}, {.token = live, .sequence = 1, .row = 1}};
  for (const Op& op : program.ops) {
    const auto views = [&](const std::vector<ValueId>& ids) {
      std::vector<TensorView> out;
      for (ValueId id : ids) {
        if (id == kNoValue) {
          out.emplace_back();
          continue;
        }
        const ValueType& type = program.value(id).type;
        out.push_back(
            make_view(reinterpret_cast<std::byte*>(memory[static_cast<size_t>(id)].data()),
                      type.dtype, type.shape));
      }
      return out;
    };
    const auto in = views(op.inputs), out = views(op.outputs);
    op.def->reference({&op, in, out, program.value(op.inputs[0]).type.axis, &part});
  }
}

std::vector<double> times(const float* w, const std::vector<double>& x, int64_t N,
                          const float* bias) {
  std::vector<double> y(static_cast<size_t>(N));
  for (size_t n = 0; n < y.size(); ++n) {
    y[n] = bias ? bias[n] : 0;
    for (size_t i = 0; i < x.size(); ++i) y[n] += w[n * x.size() + i] * x[i];
  }
  return y;
}

TEST(Experts, GiveWhatEachTokenGivesAlone) {
  const uint64_t seed = std::random_device{}();
  for (const Sizes& s : {Sizes{}, Sizes{.biased = true}, Sizes{.shared = true},
                         Sizes{.shared = true, .gated = true}, Sizes{.T = 1, .E = 1, .k = 1},
                         Sizes{.T = 40, .E = 9, .k = 9, .C = 3, .F = 11, .biased = true}}) {
    SCOPED_TRACE(fmt::format("T {} E {} k {}, seed {}", s.T, s.E, s.k, seed));
    const Block net = block(s);
    Memory m = random_values(net.program, seed);
    const int64_t live = std::max<int64_t>(1, s.T - 1);
    run(net.program, m, live);
    const auto data = [&](const char* name) -> const float* {
      const auto id = net.program.find(name);
      return id ? m[static_cast<size_t>(*id)].data() : nullptr;
    };
    const auto at = [](const float* p, int64_t i) { return p ? p + i : nullptr; };
    for (int64_t t = 0; t < live; ++t) {
      std::vector<double> x(data("x") + t * s.C, data("x") + (t + 1) * s.C);
      std::vector<int32_t> expert(static_cast<size_t>(s.k));
      std::vector<float> weight(expert.size());
      ops::choose_experts({.top_k = s.k}, {data("logits") + t * s.E, static_cast<size_t>(s.E)},
                          nullptr, expert.data(), weight.data());
      std::vector<double> want(static_cast<size_t>(s.C));
      for (size_t j = 0; j < expert.size(); ++j) {
        const int64_t e = expert[j];
        auto h = times(data("gate") + e * s.F * s.C, x, s.F, at(data("gate.bias"), e * s.F));
        const auto up = times(data("up") + e * s.F * s.C, x, s.F, at(data("up.bias"), e * s.F));
        for (size_t i = 0; i < h.size(); ++i) h[i] *= up[i] / (1 + std::exp(-h[i]));
        const auto y = times(data("down") + e * s.C * s.F, h, s.C, at(data("down.bias"), e * s.C));
        for (size_t i = 0; i < y.size(); ++i) want[i] += weight[j] * y[i];
      }
      for (size_t i = 0; s.shared && i < want.size(); ++i) {
        const double g = s.gated ? 1 / (1 + std::exp(-data("shared_gate")[t])) : 1;
        want[i] += g * data("shared")[t * s.C + static_cast<int64_t>(i)];
      }
      for (int64_t i = 0; i < s.C; ++i) {
        const double got = m[static_cast<size_t>(net.y)][static_cast<size_t>(t * s.C + i)];
        ASSERT_NEAR(got, want[static_cast<size_t>(i)], 2e-4) << "token " << t;
      }
    }
    if (live < s.T) {
      EXPECT_TRUE(std::isnan(m[static_cast<size_t>(net.y)].back())) << "a dead row was written";
    }
  }
}

// A token that is no number spoils no other.
TEST(Experts, OneTokenThatIsNoNumberSpoilsNoOther) {
  const Sizes s = {.T = 6, .shared = true};
  const Block net = block(s);
  Memory clean = random_values(net.program, 3), bad = clean;
  const auto x = static_cast<size_t>(*net.program.find("x"));
  const auto logits = static_cast<size_t>(*net.program.find("logits"));
  std::fill_n(bad[x].begin() + 2 * s.C, s.C, NAN);
  std::fill_n(bad[logits].begin() + 2 * s.E, s.E, NAN);
  run(net.program, clean, s.T);
  run(net.program, bad, s.T);
  const auto y = static_cast<size_t>(net.y);
  for (size_t i = 0; i < clean[y].size(); ++i) {
    const bool own = static_cast<int64_t>(i) / s.C == 2;
    if (own) {
      EXPECT_TRUE(std::isnan(bad[y][i]));
    } else {
      EXPECT_EQ(bad[y][i], clean[y][i]) << i;
    }
  }
}

TEST(Experts, RulesDivideTheWidth) {
  const Program program = block({.biased = true, .shared = true}).program;
  const Placement rows = Placement::shard(1, {{0, 4}, {4, 6}}),
                  columns = Placement::shard(2, {{0, 4}, {4, 6}});
  const auto rule = [&](const Op& op, std::vector<Placement> placed) {
    return op.def->shard(op.attrs, program.input_types(op), placed, 2);
  };
  const Placement all;
  const Op &gated = program.ops[1], &down = program.ops[2], &combine = program.ops[3];
  ShardRule r = rule(gated, {all, all, all, rows, rows, rows, rows});
  EXPECT_EQ(r.inputs[3], rows);
  EXPECT_EQ(r.inputs[6], rows);
  EXPECT_EQ(r.outputs[0], rows);
  r = rule(down, {rows, all, columns, all});
  EXPECT_EQ(r.inputs[0], rows);
  EXPECT_TRUE(r.outputs[0].is_partial());
  EXPECT_FALSE(
      down.def->localize(down.attrs, {}, r, 0).as<ops::ExpertLinearAttrs>().bias_elsewhere);
  EXPECT_TRUE(down.def->localize(down.attrs, {}, r, 1).as<ops::ExpertLinearAttrs>().bias_elsewhere);
  const Placement sum = Placement::partial();
  for (const bool shared_is_partial : {false, true}) {
    r = rule(combine, {all, all, sum, shared_is_partial ? sum : all, all});
    EXPECT_TRUE(r.outputs[0].is_partial());
    EXPECT_EQ(r.inputs[3].is_partial(), shared_is_partial);
    EXPECT_EQ(
        combine.def->localize(combine.attrs, {}, r, 1).as<ops::CombineAttrs>().shared_elsewhere,
        !shared_is_partial);
  }
}

TEST(Experts, RulesDivideTheExperts) {
  const Program program = block({.biased = true, .shared = true}).program;
  const std::vector<Range> parts = {{0, 1}, {1, 1}, {1, 4}};
  const Placement experts = Placement::shard(0, parts), all, sum = Placement::partial();
  const auto rule = [&](const Op& op, std::vector<Placement> placed) {
    return op.def->shard(op.attrs, program.input_types(op), placed, 3);
  };
  const Op &route = program.ops[0], &gated = program.ops[1], &down = program.ops[2];
  const ShardRule routed = rule(route, {Placement::shard(1, parts), all});
  EXPECT_TRUE(routed.inputs[0].is_replicated());
  EXPECT_TRUE(routed.outputs[1].is_partial());
  for (int r = 0; r < 3; ++r) {
    const Attrs own = route.def->localize(route.attrs, {}, routed, r);
    EXPECT_EQ(own.as<ops::RouteAttrs>().held, parts[static_cast<size_t>(r)]);
    EXPECT_EQ(route.def->infer(own, program.input_types(route))[3].shape[0],
              parts[static_cast<size_t>(r)].size() + 1);
  }
  const Placement &token = routed.outputs[2], &begin = routed.outputs[3];
  ShardRule r = rule(gated, {all, token, begin, experts, experts, experts, experts});
  EXPECT_EQ(r.inputs[5], experts);
  EXPECT_EQ(r.inputs[2], begin);
  EXPECT_EQ(r.outputs[0], token);
  r = rule(down, {token, begin, experts, experts});
  EXPECT_EQ(r.inputs[3], experts);
  EXPECT_EQ(r.outputs[0], token);
  EXPECT_FALSE(
      down.def->localize(down.attrs, {}, r, 1).as<ops::ExpertLinearAttrs>().bias_elsewhere);
  r = rule(program.ops[3], {all, sum, token, all, all});
  EXPECT_EQ(r.inputs[1], sum);
  EXPECT_EQ(r.inputs[2], token);
  EXPECT_TRUE(r.outputs[0].is_partial());
}

TEST(Experts, CostsCountTheExpertsThatAreChosen) {
  EXPECT_DOUBLE_EQ(ops::experts_chosen(8, 2, 1), 2);
  EXPECT_NEAR(ops::experts_chosen(128, 8, 16), 82, 1);  // of even choices
  EXPECT_NEAR(ops::experts_chosen(64, 6, 64), 64, 0.5);
  const Program program = block({.T = 64, .E = 8, .C = 32, .F = 16}).program;
  const auto bytes = [&](int64_t tokens) {
    Work work{.extents = {.token = tokens, .expert_row = 2 * tokens}};
    return program.cost(program.ops[1], work).bytes;
  };
  const double expert = 2 * 16 * 32 * 4;
  EXPECT_NEAR(bytes(1), 2 * expert, 0.2 * expert);
  EXPECT_LT(bytes(64), 8 * expert + 64 * 4 * (32 + 2 * 16) + 1);
}

TEST(Experts, ShapeRulesNameWhatIsWrong) {
  Builder b("t", {.token = 2, .sequence = 1, .row = 1, .expert_row = 4});
  const ValueId x = b.input("x", {DType::f32, {2, 8}, BatchAxis::token});
  const ops::Route route =
      ops::route(b, b.input("l", {DType::f32, {2, 4}, BatchAxis::token}), kNoValue, {.top_k = 2});
  const auto error = [&](const Shape& gate, const Shape& up, const Shape& down) -> std::string {
    static int n = 0;
    const auto weight = [&](const Shape& shape) {
      return ops::LinearWeights{b.weight(fmt::format("w{}", n++), {DType::f32, shape})};
    };
    try {
      ops::experts(b, x, route, {weight(gate), weight(up), weight(down)}, ops::Activation::silu);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error({3, 6, 8}, {4, 6, 8}, {4, 8, 6}), HasSubstr("wanted 4 in dimension 0"));
  EXPECT_THAT(error({4, 6, 7}, {4, 6, 8}, {4, 8, 6}), HasSubstr("wanted 8 in dimension 2"));
  EXPECT_THAT(error({4, 6, 8}, {4, 5, 8}, {4, 8, 6}), HasSubstr("wanted 6 in dimension 1"));
  EXPECT_THAT(error({4, 6, 8}, {4, 6, 8}, {4, 8, 5}), HasSubstr("wanted 6 in dimension 2"));
  EXPECT_EQ(error({4, 6, 8}, {4, 6, 8}, {4, 8, 6}), "no error");
}

}  // namespace
}  // namespace braid
