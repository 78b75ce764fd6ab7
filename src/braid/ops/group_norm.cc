#include "braid/ops/group_norm.h"

#include <cmath>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

std::vector<ValueType> infer(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<GroupNormAttrs>();
  BRAID_CHECK(in.size() == 3 && a.batch > 0 && a.groups > 0, "{} inputs", in.size());
  require_rank("group_norm", "x", in[0], 2);
  require_float("group_norm", "x", in[0]);
  if (in[0].shape[0] % a.batch != 0 || in[0].shape[1] % a.groups != 0) {
    fail(ErrorCode::kInvalidArgument,
         "group_norm: x is {}, no whole rows for each of {} pictures or no {} groups of channels",
         to_string(in[0]), a.batch, a.groups);
  }
  for (size_t i : {1u, 2u}) {
    require_rank("group_norm", i == 1 ? "w" : "b", in[i], 1);
    require_dim("group_norm", i == 1 ? "w" : "b", in[i], 0, in[0].shape[1]);
  }
  return {in[0]};
}

Cost cost(const Attrs&, TypeList in, TypeList out, const Work& work) {
  Cost cost = elementwise_cost(in, out, work, 12);
  cost.bytes += live_bytes(in[0], work);  // x is read twice: statistics first
  return cost;
}

ShardRule shard(const Attrs&, TypeList, std::span<const Placement>, int) {
  return replicate_all(3, 1);
}

void reference(const OpCall& call) {
  const auto& a = call.attrs<GroupNormAttrs>();
  const TensorView& x = call.in[0];
  const int64_t C = x.cols(), P = x.shape[0] / a.batch, per_group = C / a.groups;
  const std::vector<float> w = load_row(call.in[1], 0), b = load_row(call.in[2], 0);
  const auto n = static_cast<double>(P * per_group);
  for (int64_t picture = 0; picture < a.batch; ++picture) {
    std::vector<std::vector<float>> rows;
    for (int64_t p = 0; p < P; ++p) rows.push_back(load_row(x, (picture * P) + p));
    for (int64_t g = 0; g < C; g += per_group) {
      double mean = 0, variance = 0;
      for (const auto& row : rows) {
        for (int64_t c = g; c < g + per_group; ++c) mean += row[c];
      }
      mean /= n;
      for (const auto& row : rows) {
        for (int64_t c = g; c < g + per_group; ++c) variance += (row[c] - mean) * (row[c] - mean);
      }
      const double inverse = 1 / std::sqrt((variance / n) + a.eps);
      for (auto& row : rows) {
        for (int64_t c = g; c < g + per_group; ++c) {
          const double y = ((row[c] - mean) * inverse * w[c]) + b[c];
          row[c] = static_cast<float>(a.silu ? y / (1 + std::exp(-y)) : y);
        }
      }
    }
    for (int64_t p = 0; p < P; ++p) store_row(call.out[0], (picture * P) + p, rows[p]);
  }
}

}  // namespace

const OpDef kGroupNorm = {.kind = "group_norm",
                          .infer = infer,
                          .mutated_inputs = {},
                          .cost = cost,
                          .shard = shard,
                          .reference = reference};

ValueId group_norm(Builder& b, ValueId x, const GroupNormWeights& weights,
                   const GroupNormAttrs& attrs) {
  return b.op1(kGroupNorm, Attrs::of(attrs), {x, weights.w, weights.b});
}

}  // namespace braid::ops
