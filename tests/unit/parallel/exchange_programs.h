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
  int64_t room = 0;  // slots of a rank for another's rows in a round; 0: S
  int64_t slots() const { return room > 0 ? room : S; }
  int ranks() const { return static_cast<int>(experts.size()); }
  int64_t E() const { return experts.back().end; }
  Extents capacity() const {
    return {.token = ranks() * S,
            .sequence = 1,
            .row = 1,
            .shard = S,
            .expert_row = ranks() * slots() * k};
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
  ExpertExchange exchange(builders, route, s.experts, in, s.slots());
  ValueId y = kNoValue;
  if (F == 0) {
    for (int round = 0; round < exchange.rounds(); ++round) {
      const ExpertExchange::Arrived rows = exchange.receive(builders, y);
      for (Builder& b : builders) {
        y = b.op1(kTakeRows, {}, {rows.rows, rows.token, rows.begin});
      }
      if (round + 1 < exchange.rounds()) exchange.give_back(builders, y);
    }
  } else {
    ExpertExchange::Product gated = {.def = &ops::kExpertGated, .attrs = {}, .weights = {}};
    ExpertExchange::Product linear = {.def = &ops::kExpertLinear, .attrs = {}, .weights = {}};
    for (size_t r = 0; r < builders.size(); ++r) {
      const auto weight = [&](const char* name, int64_t out, int64_t in_columns) {
        return builders[r].weight(name, {DType::f32, {s.experts[r].size(), out, in_columns}});
      };
      const ValueId gate = weight("gate", F, s.C), up = weight("up", F, s.C);
      gated.weights = {gate, up, kNoValue, kNoValue};
      gated.attrs.push_back(Attrs::of(ops::GatedAttrs{}));
      linear.weights = {weight("down", s.C, F), kNoValue};
      linear.attrs.push_back(Attrs::of(ops::ExpertLinearAttrs{}));
    }
    exchange.gated(builders, gated);
    y = exchange.linear(builders, linear);
  }
  exchange.give_back(builders, y);
  y = exchange.finish(builders, beside, kNoValue);
  std::vector<Program> all;
  for (Builder& b : builders) all.push_back(b.finish({y}));
  return all;
}

}  // namespace braid::testing_exchange
