#include "braid/ops/fused_comm.h"

#include "braid/ops/comm.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"
#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

// Wire bytes and sums for an all_reduce of `type` over P ranks.
Cost all_reduce_cost(const ValueType& type, const std::string& axis, int P, const Work& work) {
  return kAllReduce.cost(Attrs::of(CommAttrs{axis, P}), {&type, 1}, {&type, 1}, work);
}

std::vector<ValueType> infer_linear_all_reduce(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<LinearAllReduceAttrs>();
  return kLinear.infer(
      Attrs::of(LinearAttrs{.n = 1, .bias_elsewhere = a.bias_elsewhere, .dtype = a.dtype}), in);
}

Cost cost_linear_all_reduce(const Attrs& attrs, TypeList in, TypeList out, const Work& work) {
  const auto& a = attrs.as<LinearAllReduceAttrs>();
  Cost cost = kLinear.cost(Attrs::of(LinearAttrs{}), in, out, work);
  const Cost reduce = all_reduce_cost(out[0], a.axis, a.ranks, work);
  cost.flops += reduce.flops;
  cost.wire_bytes += reduce.wire_bytes;
  return cost;
}

ShardRule shard_linear_all_reduce(const Attrs&, TypeList, std::span<const Placement>, int) {
  return replicate_all(3, 1);
}

void require_norm(std::string_view op, TypeList in) {
  require_rank(op, "x", in[0], 2);
  require_float(op, "x", in[0]);
  require_rank(op, "w", in[2], 1);
  require_dim(op, "w", in[2], 0, in[0].shape[1]);
}

void require_residual(std::string_view op, const ValueType& r, const ValueType& want) {
  if (r != want) {
    fail(ErrorCode::kInvalidArgument, "{}: the residual is {}, wanted {}", op, to_string(r),
         to_string(want));
  }
}

ValueType with_dtype(ValueType type, DType dtype) {
  type.dtype = dtype;
  return type;
}

std::vector<ValueType> infer_reduce_norm(const Attrs& attrs, TypeList in) {
  require_norm("all_reduce_add_rms_norm", in);
  require_residual("all_reduce_add_rms_norm", in[1], with_dtype(in[0], DType::f32));
  return {in[1], with_dtype(in[0], attrs.as<ReduceNormAttrs>().dtype)};
}

constexpr double kNormFlops = 5;  // of add and norm for each element

Cost cost_reduce_norm(const Attrs& attrs, TypeList in, TypeList out, const Work& work) {
  const auto& a = attrs.as<ReduceNormAttrs>();
  Cost cost = elementwise_cost(in, out, work, kNormFlops);
  const Cost reduce = all_reduce_cost(in[0], a.axis, a.ranks, work);
  cost.flops += reduce.flops;
  cost.wire_bytes = reduce.wire_bytes;
  return cost;
}

std::vector<ValueType> infer_scatter_norm_gather(const Attrs& attrs, TypeList in) {
  constexpr std::string_view kKind = "reduce_scatter_add_rms_norm_all_gather";
  require_norm(kKind, in);
  const auto& a = attrs.as<ReduceNormAttrs>();
  const ValueType shard = token_shard_of(kKind, with_dtype(in[0], DType::f32), a.ranks);
  require_residual(kKind, in[1], shard);
  return {shard, with_dtype(in[0], a.dtype)};
}

Cost cost_scatter_norm_gather(const Attrs& attrs, TypeList in, TypeList out, const Work& work) {
  const double P = attrs.as<ReduceNormAttrs>().ranks;
  const double scattered = live_bytes(in[0], work) * (P - 1) / P;
  const double gathered = live_bytes(out[1], work) / P * (P - 1);
  Cost cost = elementwise_cost(in, out, work, kNormFlops + P - 1);
  cost.wire_bytes = scattered + gathered;
  return cost;
}

ShardRule shard_norm(const Attrs&, TypeList, std::span<const Placement>, int) {
  return replicate_all(3, 2);
}

int ranks_of_linear(const Attrs& attrs) {
  return attrs.as<LinearAllReduceAttrs>().ranks;
}

int ranks_of_norm(const Attrs& attrs) {
  return attrs.as<ReduceNormAttrs>().ranks;
}

}  // namespace

const OpDef kLinearAllReduce = {
    .kind = "linear_all_reduce",
    .infer = infer_linear_all_reduce,
    .cost = cost_linear_all_reduce,
    .shard = shard_linear_all_reduce,
    .collective = {.ranks = ranks_of_linear, .sums = true, .computes = true, .products = true},
    .rate = {.kind = "linear", .typed_input = 1}};

const OpDef kAllReduceAddRmsNorm = {
    .kind = "all_reduce_add_rms_norm",
    .infer = infer_reduce_norm,
    .cost = cost_reduce_norm,
    .shard = shard_norm,
    .collective = {.ranks = ranks_of_norm, .sums = true, .computes = true},
    .rate = {.kind = "add_rms_norm"}};

const OpDef kReduceScatterAddRmsNormAllGather = {
    .kind = "reduce_scatter_add_rms_norm_all_gather",
    .infer = infer_scatter_norm_gather,
    .cost = cost_scatter_norm_gather,
    .shard = shard_norm,
    .collective = {.ranks = ranks_of_norm, .rounds = 2, .computes = true},
    .rate = {.kind = "add_rms_norm"}};

}  // namespace braid::ops
