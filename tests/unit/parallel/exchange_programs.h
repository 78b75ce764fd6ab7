#pragma once

#include <vector>

#include "braid/base/math.h"
#include "braid/ops/rules.h"
#include "braid/parallel/experts/exchange.h"

// Programs of ranks that exchange expert rows, whose experts are the identity or have a width.
namespace braid::testing_exchange {

struct Sizes {
  std::vector<Range> experts;  // [P]
  int64_t k = 2;
  int64_t S = 5;  // rows of a rank, at capacity
  int64_t C = 4;
  int ranks() const { return static_cast<int>(experts.size()); }
  int64_t E() const { return experts.back().end; }
  Extents capacity() const {
    return {
        .token = ranks() * S, .sequence = 1, .row = 1, .shard = S, .expert_row = ranks() * S * k};
  }
};

// y[r] = x[token[r]]: x [n, C], token i32 [R], begin i32 [H + 1] -> [R, C].
inline const OpDef kTakeRows = {
    .kind = "take_rows",
    .infer = [](const Attrs&, TypeList in) -> std::vector<ValueType> {
      return {{in[0].dtype, {in[1].shape[0], in[0].shape[1]}, in[1].axis}};
    },
    .mutated_inputs = {},
    .cost = [](const Attrs&, TypeList in, TypeList out,
               const Work& work) { return ops::elementwise_cost(in, out, work, 0); },
    .shard = [](const Attrs&, TypeList, std::span<const Placement>,
                int) { return ops::replicate_all(3, 1); },
    .reference =
        [](const OpCall& call) {
          const auto* begin = call.in[2].as<const int32_t>();
          for (int64_t r = 0; r < begin[call.in[2].shape[0] - 1]; ++r) {
            ops::store_row(call.out[0], r,
                           ops::load_row(call.in[0], call.in[1].as<const int32_t>()[r]));
          }
        },
};

// Inputs "x" [S, C], "logits" [S, E] and, where asked for, "shared" [S, C]; weights are sigmoids.
// Of experts with F hidden units the weights are "gate", "up" and "down".
inline std::vector<Program> programs(const Sizes& s, bool shared = false, int64_t F = 0) {
  std::vector<Builder> builders;
  ExpertExchange::Inputs in;
  ValueId beside = kNoValue;
  for (int r = 0; r < s.ranks(); ++r) {
    Builder& b = builders.emplace_back("exchange", s.capacity());
    in.x = b.input("x", {DType::f32, {s.S, s.C}, BatchAxis::shard});
    in.logits = b.input("logits", {DType::f32, {s.S, s.E()}, BatchAxis::shard});
    if (shared) beside = b.input("shared", {DType::f32, {s.S, s.C}, BatchAxis::shard});
  }
  const ops::RouteAttrs route = {
      .top_k = s.k, .score = ops::RouteScore::sigmoid, .weight = ops::RouteWeight::score};
  ExpertExchange exchange(builders, route, s.experts, in);
  const ExpertExchange::Arrived rows = exchange.receive(builders);
  ValueId y = kNoValue;
  for (size_t r = 0; r < builders.size(); ++r) {
    Builder& b = builders[r];
    if (F == 0) {
      y = b.op1(kTakeRows, {}, {rows.rows, rows.token, rows.begin});
      continue;
    }
    const int64_t H = s.experts[r].size();
    const auto weight = [&](const char* name, int64_t out, int64_t in_columns) {
      return b.weight(name, {DType::f32, {H, out, in_columns}});
    };
    const ValueId gate = weight("gate", F, s.C), up = weight("up", F, s.C);
    const ValueId h = b.op1(ops::kExpertGated, Attrs::of(ops::GatedAttrs{}),
                            {rows.rows, rows.token, rows.begin, gate, up, kNoValue, kNoValue});
    y = b.op1(ops::kExpertLinear, Attrs::of(ops::ExpertLinearAttrs{}),
              {h, rows.begin, weight("down", s.C, F), kNoValue});
  }
  y = exchange.finish(builders, y, beside, kNoValue);
  std::vector<Program> all;
  for (Builder& b : builders) all.push_back(b.finish({y}));
  return all;
}

}  // namespace braid::testing_exchange
