#include "braid/ops/unary.h"

#include <array>
#include <cmath>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

std::vector<ValueType> infer(const Attrs&, TypeList in) {
  require_rank("unary", "x", in[0], 2);
  require_float("unary", "x", in[0]);
  return {in[0]};
}

Cost cost(const Attrs&, TypeList in, TypeList out, const Work& work) {
  return elementwise_cost(in, out, work, 5);
}

ShardRule shard(const Attrs&, TypeList, std::span<const Placement> placed, int) {
  if (placed[0].is_shard()) return {{placed[0]}, {placed[0]}};
  return replicate_all(1, 1);
}

double apply(UnaryFunction function, double x) {
  switch (function) {
    case UnaryFunction::silu:
      return x / (1 + std::exp(-x));
    case UnaryFunction::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case UnaryFunction::quick_gelu:
      break;
  }
  return x / (1 + std::exp(-1.702 * x));
}

void reference(const OpCall& call) {
  const UnaryFunction function = call.attrs<UnaryAttrs>().function;
  for (int64_t t = 0; t < call.rows(); ++t) {
    std::vector<float> x = load_row(call.in[0], t);
    for (float& v : x) v = static_cast<float>(apply(function, v));
    store_row(call.out[0], t, x);
  }
}

}  // namespace

const OpDef kUnary = {.kind = "unary",
                      .infer = infer,
                      .mutated_inputs = {},
                      .cost = cost,
                      .shard = shard,
                      .reference = reference};

std::string_view to_string(UnaryFunction function) {
  constexpr std::array<std::string_view, 3> kNames = {"silu", "gelu_tanh", "quick_gelu"};
  return kNames[static_cast<size_t>(function)];
}

ValueId unary(Builder& b, ValueId x, UnaryFunction function) {
  return b.op1(kUnary, Attrs::of(UnaryAttrs{function}), {x});
}

}  // namespace braid::ops
