#include "braid/ops/experts.h"

#include <algorithm>
#include <cmath>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

namespace gated_in {
enum Input : size_t { kX, kToken, kBegin, kGate, kUp, kGateBias, kUpBias, kCount };
}
namespace linear_in {
enum Input : size_t { kX, kBegin, kWeight, kBias, kCount };
}
namespace combine_in {
enum Input : size_t { kWeight, kPlace, kX, kShared, kGate, kCount };
}

// W [E, N, K] and its bias [E, N]; E is the experts in `begin`.
void require_weights(std::string_view op, std::string_view operand, const ValueType& w,
                     const ValueType& bias, const ValueType& begin, int64_t K) {
  require_rank(op, operand, w, 3);
  require_rank(op, "begin", begin, 1);
  require_dtype(op, "begin", begin, DType::i32);
  require_dim(op, operand, w, 0, begin.shape[0] - 1);
  require_dim(op, operand, w, 2, K);
  if (bias.shape.rank() == 0) return;
  require_rank(op, "bias", bias, 2);
  require_dim(op, "bias", bias, 0, w.shape[0]);
  require_dim(op, "bias", bias, 1, w.shape[1]);
}

// Bytes of weights read, for `of` chosen experts.
double chosen_bytes(const ValueType& w, double of, const Work& work) {
  const int64_t E = w.shape.rank() == 0 ? 0 : w.shape[0];
  return E == 0 ? 0 : live_bytes(w, work) * of / static_cast<double>(E);
}

std::vector<ValueType> infer_gated(const Attrs&, TypeList in) {
  using namespace gated_in;
  BRAID_CHECK(in.size() == kCount);
  require_rank("expert_gated", "x", in[kX], 2);
  require_float("expert_gated", "x", in[kX]);
  require_rank("expert_gated", "token", in[kToken], 1);
  require_dtype("expert_gated", "token", in[kToken], DType::i32);
  const int64_t K = in[kX].shape[1];
  require_weights("expert_gated", "gate", in[kGate], in[kGateBias], in[kBegin], K);
  require_weights("expert_gated", "up", in[kUp], in[kUpBias], in[kBegin], K);
  require_dim("expert_gated", "up", in[kUp], 1, in[kGate].shape[1]);
  return {{in[kX].dtype, {in[kToken].shape[0], in[kGate].shape[1]}, in[kToken].axis}};
}

Cost cost_gated(const Attrs&, TypeList in, TypeList out, const Work& work) {
  using namespace gated_in;
  const double T = live_elems({DType::f32, {in[kX].shape[0]}, in[kX].axis}, work);
  const double rows = live_elems({DType::f32, {in[kToken].shape[0]}, in[kToken].axis}, work);
  const double chosen = experts_chosen(in[kGate].shape[0], rows / std::max(1.0, T), T);
  Cost cost;
  cost.bytes = live_bytes(in[kX], work) + live_bytes(out[0], work);
  for (const size_t i : {kGate, kUp, kGateBias, kUpBias}) {
    cost.bytes += chosen_bytes(in[i], chosen, work);
  }
  cost.flops = rows * static_cast<double>(in[kGate].shape[1]) *
               (4 * static_cast<double>(in[kGate].shape[2]) + 5);
  return cost;
}

ShardRule shard_gated(const Attrs&, TypeList, std::span<const Placement> placed, int) {
  using namespace gated_in;
  ShardRule rule = replicate_all(kCount, 1);
  if (placed[kGate].is_shard(1) && placed[kGate] == placed[kUp]) {
    for (const size_t i : {kGate, kUp, kGateBias, kUpBias}) rule.inputs[i] = placed[kGate];
    rule.outputs[0] = Placement::shard(1, placed[kGate].parts);
  } else if (placed[kGate].is_shard(0)) {
    for (const size_t i : {kGate, kUp, kGateBias, kUpBias}) rule.inputs[i] = placed[kGate];
    rule.inputs[kBegin] = placed[kBegin];
    rule.inputs[kToken] = rule.outputs[0] = placed[kToken];
  } else if (placed[kX].is_shard(0)) {
    rule.inputs[kX] = placed[kX];
    rule.inputs[kToken] = rule.outputs[0] = placed[kToken];
  }
  return rule;
}

std::vector<ValueType> infer_linear(const Attrs&, TypeList in) {
  using namespace linear_in;
  BRAID_CHECK(in.size() == kCount);
  require_rank("expert_linear", "x", in[kX], 2);
  require_float("expert_linear", "x", in[kX]);
  require_weights("expert_linear", "w", in[kWeight], in[kBias], in[kBegin], in[kX].shape[1]);
  return {{in[kX].dtype, {in[kX].shape[0], in[kWeight].shape[1]}, in[kX].axis}};
}

Cost cost_linear(const Attrs&, TypeList in, TypeList out, const Work& work) {
  using namespace linear_in;
  const int64_t E = in[kWeight].shape[0];
  const double rows = live_elems({DType::f32, {in[kX].shape[0]}, in[kX].axis}, work);
  const double chosen = experts_chosen(E, 1, rows);
  Cost cost;
  cost.bytes = live_bytes(in[kX], work) + live_bytes(out[0], work) +
               chosen_bytes(in[kWeight], chosen, work) + chosen_bytes(in[kBias], chosen, work);
  cost.flops = 2 * rows * static_cast<double>(in[kWeight].shape[1]) *
               static_cast<double>(in[kWeight].shape[2]);
  return cost;
}

ShardRule shard_linear(const Attrs&, TypeList, std::span<const Placement> placed, int) {
  using namespace linear_in;
  ShardRule rule = replicate_all(kCount, 1);
  if (placed[kWeight].is_shard(2)) {
    rule.inputs[kWeight] = placed[kWeight];
    rule.inputs[kX] = Placement::shard(1, placed[kWeight].parts);
    rule.outputs[0] = Placement::partial();
  } else if (placed[kX].is_shard(0)) {
    rule.inputs[kX] = rule.outputs[0] = placed[kX];
    if (placed[kWeight].is_shard(0)) {
      rule.inputs[kWeight] = rule.inputs[kBias] = placed[kWeight];
      rule.inputs[kBegin] = placed[kBegin];
    }
  }
  return rule;
}

Attrs localize_linear(const Attrs& attrs, TypeList, const ShardRule& rule, int rank) {
  auto local = attrs.as<ExpertLinearAttrs>();
  local.bias_elsewhere = rule.outputs[0].is_partial() && rank != 0;
  return Attrs::of(local);
}

std::vector<ValueType> infer_combine(const Attrs&, TypeList in) {
  using namespace combine_in;
  BRAID_CHECK(in.size() == kCount);
  require_rank("combine", "weight", in[kWeight], 2);
  require_dtype("combine", "weight", in[kWeight], DType::f32);
  require_dtype("combine", "place", in[kPlace], DType::i32);
  if (!(in[kPlace].shape == in[kWeight].shape)) {
    fail(ErrorCode::kInvalidArgument, "combine: weight is {}, place is {}", to_string(in[kWeight]),
         to_string(in[kPlace]));
  }
  require_rank("combine", "x", in[kX], 2);
  require_float("combine", "x", in[kX]);
  const int64_t T = in[kWeight].shape[0];
  require_dim("combine", "x", in[kX], 0, T * in[kWeight].shape[1]);
  const ValueType y = {in[kX].dtype, {T, in[kX].shape[1]}, in[kWeight].axis};
  if (in[kShared].shape.rank() != 0 && !(in[kShared] == y)) {
    fail(ErrorCode::kInvalidArgument, "combine: shared is {}, wanted {}", to_string(in[kShared]),
         to_string(y));
  }
  if (in[kGate].shape.rank() != 0) {
    require_dtype("combine", "gate", in[kGate], DType::f32);
    require_dim("combine", "gate", in[kGate], 0, T);
    require_dim("combine", "gate", in[kGate], 1, 1);
    require_rank("combine", "shared", in[kShared], 2);
  }
  return {y};
}

Cost cost_combine(const Attrs&, TypeList in, TypeList out, const Work& work) {
  Cost cost = elementwise_cost(in, out, work, 2 * static_cast<double>(in[0].shape[1]) + 2);
  return cost;
}

ShardRule shard_combine(const Attrs&, TypeList, std::span<const Placement> placed, int) {
  using namespace combine_in;
  ShardRule rule = replicate_all(kCount, 1);
  if (placed[kX].is_partial() || placed[kPlace].is_partial()) {
    rule.inputs[kX] = placed[kX];
    rule.inputs[kPlace] = placed[kPlace];
    rule.outputs[0] = Placement::partial();
    if (placed[kShared].is_partial()) rule.inputs[kShared] = Placement::partial();
  } else if (placed[kWeight].is_shard(0)) {
    for (const size_t i : {kWeight, kPlace, kShared, kGate}) rule.inputs[i] = placed[kWeight];
    rule.inputs[kX] = placed[kX];
    rule.outputs[0] = placed[kWeight];
  }
  return rule;
}

Attrs localize_combine(const Attrs& attrs, TypeList, const ShardRule& rule, int rank) {
  auto local = attrs.as<CombineAttrs>();
  local.shared_elsewhere =
      rule.outputs[0].is_partial() && rule.inputs[combine_in::kShared].is_replicated() && rank != 0;
  return Attrs::of(local);
}

// Calls f(e, row) for each row of each expert.
template <class F>
void for_rows(const TensorView& begin, F&& f) {
  const auto* first = begin.as<const int32_t>();
  for (int64_t e = 0; e + 1 < begin.shape[0]; ++e) {
    for (int32_t row = first[e]; row < first[e + 1]; ++row) f(e, row);
  }
}

std::vector<float> product(const std::vector<float>& x, const TensorView& w, const TensorView& bias,
                           int64_t e) {
  const TensorView expert = matrix(w, e);
  std::vector<float> y(expert.shape[0]);
  if (bias.data != nullptr) y = load_row(bias, e);
  for (size_t n = 0; n < y.size(); ++n) {
    const std::vector<float> row = load_row(expert, static_cast<int64_t>(n));
    double sum = y[n];
    for (size_t k = 0; k < x.size(); ++k) sum += static_cast<double>(x[k]) * row[k];
    y[n] = static_cast<float>(sum);
  }
  return y;
}

void reference_gated(const OpCall& call) {
  using namespace gated_in;
  const auto* token = call.in[kToken].as<const int32_t>();
  const Activation activation = call.attrs<GatedAttrs>().activation;
  for_rows(call.in[kBegin], [&](int64_t e, int32_t row) {
    const std::vector<float> x = load_row(call.in[kX], token[row]);
    std::vector<float> y = product(x, call.in[kGate], call.in[kGateBias], e);
    const std::vector<float> up = product(x, call.in[kUp], call.in[kUpBias], e);
    for (size_t i = 0; i < y.size(); ++i) y[i] = activate(activation, y[i]) * up[i];
    store_row(call.out[0], row, y);
  });
}

void reference_linear(const OpCall& call) {
  using namespace linear_in;
  const bool biased = !call.attrs<ExpertLinearAttrs>().bias_elsewhere;
  for_rows(call.in[kBegin], [&](int64_t e, int32_t row) {
    const std::vector<float> x = load_row(call.in[kX], row);
    store_row(call.out[0], row,
              product(x, call.in[kWeight], biased ? call.in[kBias] : TensorView{}, e));
  });
}

void reference_combine(const OpCall& call) {
  using namespace combine_in;
  const int64_t k = call.in[kWeight].cols();
  const TensorView& shared = call.in[kShared];
  const bool adds_shared = shared.data != nullptr && !call.attrs<CombineAttrs>().shared_elsewhere;
  for (int64_t t = 0; t < call.rows(); ++t) {
    const auto* weight = call.in[kWeight].row_as<const float>(t);
    const auto* place = call.in[kPlace].row_as<const int32_t>(t);
    std::vector<float> y(call.out[0].cols());
    const auto add = [&](const std::vector<float>& x, float factor) {
      for (size_t i = 0; i < y.size(); ++i) y[i] += factor * x[i];
    };
    for (int64_t j = 0; j < k; ++j) {
      if (place[j] >= 0) add(load_row(call.in[kX], place[j]), weight[j]);
    }
    if (adds_shared) {
      const bool gated = call.in[kGate].data != nullptr;
      const float gate = gated ? call.in[kGate].as<const float>()[t] : 0;
      add(load_row(shared, t), gated ? 1 / (1 + std::exp(-gate)) : 1);
    }
    store_row(call.out[0], t, y);
  }
}

}  // namespace

const OpDef kExpertGated = {.kind = "expert_gated",
                            .infer = infer_gated,
                            .cost = cost_gated,
                            .shard = shard_gated,
                            .reference = reference_gated};

const OpDef kExpertLinear = {.kind = "expert_linear",
                             .infer = infer_linear,
                             .cost = cost_linear,
                             .shard = shard_linear,
                             .localize = localize_linear,
                             .reference = reference_linear};

const OpDef kCombine = {.kind = "combine",
                        .infer = infer_combine,
                        .cost = cost_combine,
                        .shard = shard_combine,
                        .localize = localize_combine,
                        .reference = reference_combine};

ValueId experts(Builder& b, ValueId x, const Route& route, const ExpertWeights& w,
                Activation activation, ValueId shared, ValueId shared_gate) {
  const ValueId h = b.op1(kExpertGated, Attrs::of(GatedAttrs{activation}),
                          {x, route.token, route.begin, w.gate.w, w.up.w, w.gate.bias, w.up.bias});
  const ValueId y =
      b.op1(kExpertLinear, Attrs::of(ExpertLinearAttrs{}), {h, route.begin, w.down.w, w.down.bias});
  return b.op1(kCombine, Attrs::of(CombineAttrs{}),
               {route.weight, route.place, y, shared, shared_gate});
}

double experts_chosen(int64_t E, double k, double T) {
  const auto n = static_cast<double>(E);
  return E == 0 ? 0 : n * (1 - std::pow(1 - std::min(1.0, k / n), T));
}

}  // namespace braid::ops
