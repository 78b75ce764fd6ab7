#include "braid/ops/linear_unary.h"

#include <algorithm>

#include "braid/ops/concat.h"
#include "braid/ops/linear.h"
#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

enum Input : size_t { kX, kW, kBias, kFront };

bool has_front(TypeList in) {
  return in[kFront].shape.rank() != 0;
}

std::vector<ValueType> infer(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<LinearUnaryAttrs>();
  const ValueType y = kLinear.infer(Attrs::of(LinearAttrs{.dtype = a.dtype}), in.first(kFront))[0];
  if (!has_front(in)) return {y};
  const std::vector<ValueType> parts = {in[kFront], y};
  return kConcatColumns.infer({}, parts);
}

Cost cost(const Attrs&, TypeList in, TypeList out, const Work& work) {
  Cost cost = elementwise_cost(in, out, work, 0);
  const auto rows = static_cast<double>(in[kX].shape[0]);
  cost.flops = 2 * rows * static_cast<double>(in[kW].shape[0] * in[kW].shape[1]);
  return cost;
}

ShardRule shard(const Attrs&, TypeList in, std::span<const Placement>, int) {
  return replicate_all(in.size(), 1);
}

void reference(const OpCall& call) {
  const auto& a = call.attrs<LinearUnaryAttrs>();
  const TensorView &front = call.in[kFront], &y = call.out[0];
  const int64_t F = front.data ? front.cols() : 0, N = y.cols() - F;
  const Shape shape = {y.shape[0], N};
  // The product and the function meet in f32.
  std::vector<float> product(shape.elems());
  const TensorView z = make_view(reinterpret_cast<std::byte*>(product.data()), DType::f32, shape);
  const Op linear = {.def = &kLinear, .attrs = Attrs::of(LinearAttrs{})};
  kLinear.reference({&linear, call.in.first(kFront), {&z, 1}, call.axis, call.part});
  const Op unary = {.def = &kUnary, .attrs = Attrs::of(UnaryAttrs{a.function})};
  kUnary.reference({&unary, {&z, 1}, {&z, 1}, call.axis, call.part});
  for (int64_t t = 0; t < call.rows(); ++t) {
    std::vector<float> row = front.data ? load_row(front, t) : std::vector<float>();
    row.insert(row.end(), z.row_as<float>(t), z.row_as<float>(t) + N);
    store_row(y, t, row);
  }
}

std::optional<Op> make(const Program& program, std::span<const Op> run) {
  const Op &linear = run[0], &unary = run[1];
  const auto& attrs = linear.attrs.as<LinearAttrs>();
  const auto type = [&](ValueId id) -> const ValueType& { return program.value(id).type; };
  const DType dtype = type(linear.outputs[0]).dtype;
  const auto alike = [&](ValueId id) { return type(id).dtype == dtype; };
  const UnaryFunction function = unary.attrs.as<UnaryAttrs>().function;
  if (attrs.n != 1 || attrs.bias_elsewhere || unary.inputs != linear.outputs ||
      function != UnaryFunction::gelu_tanh || type(linear.inputs[0]).axis != BatchAxis::none ||
      (dtype != DType::bf16 && dtype != DType::f16) || !alike(linear.inputs[0]) ||
      !alike(linear.inputs[1])) {
    return std::nullopt;
  }
  ValueId front = kNoValue;
  if (run.size() == 3) {
    constexpr int64_t kAligned = 8;  // products begin at whole vectors
    const std::vector<ValueId>& parts = run[2].inputs;
    if (parts.size() != 2 || parts[1] != unary.outputs[0] ||
        type(parts[0]).shape[1] % kAligned != 0) {
      return std::nullopt;
    }
    front = parts[0];
  }
  return Op{&kLinearUnary,
            Attrs::of(LinearUnaryAttrs{function, dtype}),
            {linear.inputs[0], linear.inputs[1], linear.inputs[2], front},
            run.back().outputs,
            linear.scope,
            linear.tag};
}

}  // namespace

const OpDef kLinearUnary = {.kind = "linear_unary",
                            .infer = infer,
                            .mutated_inputs = {},
                            .cost = cost,
                            .shard = shard,
                            .reference = reference,
                            .rate = {.kind = "linear", .typed_input = 1}};

const std::vector<Fusion>& linear_unary_fusions() {
  static const std::vector<Fusion> kFusions = {
      {"linear_unary", {"linear", "unary", "concat_columns"}, make},
      {"linear_unary", {"linear", "unary"}, make},
  };
  return kFusions;
}

}  // namespace braid::ops
