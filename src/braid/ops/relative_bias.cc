#include "braid/ops/relative_bias.h"

#include <algorithm>
#include <cmath>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

std::vector<ValueType> infer(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<RelativeBiasAttrs>();
  require_rank("relative_bias", "table", in[0], 2);
  require_float("relative_bias", "table", in[0]);
  if (in[0].shape[0] < 4 || in[0].shape[0] % 4 != 0 || a.max_distance <= in[0].shape[0] / 4) {
    fail(ErrorCode::kInvalidArgument,
         "relative_bias: table is {} with a maximal distance of {}, wanted are 4 buckets or a "
         "multiple, and a distance over a quarter of them",
         to_string(in[0]), a.max_distance);
  }
  return {{DType::f32, {in[0].shape[1], a.length, a.length}}};
}

Cost cost(const Attrs&, TypeList in, TypeList out, const Work& work) {
  return elementwise_cost(in, out, work, 0);
}

ShardRule shard(const Attrs&, TypeList, std::span<const Placement>, int) {
  return replicate_all(1, 1);
}

void reference(const OpCall& call) {
  const auto& a = call.attrs<RelativeBiasAttrs>();
  const TensorView& table = call.in[0];
  const int64_t buckets = table.shape[0], heads = table.shape[1], L = a.length;
  std::vector<std::vector<float>> rows;  // by distance, from 1 - L
  for (int64_t distance = 1 - L; distance < L; ++distance) {
    rows.push_back(load_row(table, relative_bucket(distance, buckets, a.max_distance)));
  }
  float* out = call.out[0].as<float>();
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < L; ++i) {
      for (int64_t j = 0; j < L; ++j) *out++ = rows[j - i + L - 1][h];
    }
  }
}

}  // namespace

int64_t relative_bucket(int64_t distance, int64_t buckets, int64_t max_distance) {
  const int64_t half = buckets / 2, exact = half / 2;
  const int64_t first = distance > 0 ? half : 0;
  const int64_t d = std::abs(distance);
  if (d < exact) return first + d;
  // In f32 and in this order, as the model was trained.
  const float ratio =
      std::log(static_cast<float>(d) / static_cast<float>(exact)) /
      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
  const auto step = static_cast<int64_t>(ratio * static_cast<float>(half - exact));
  return first + std::min(exact + step, half - 1);
}

const OpDef kRelativeBias = {.kind = "relative_bias",
                             .infer = infer,
                             .mutated_inputs = {},
                             .cost = cost,
                             .shard = shard,
                             .reference = reference};

ValueId relative_bias(Builder& b, ValueId table, const RelativeBiasAttrs& attrs) {
  return b.op1(kRelativeBias, Attrs::of(attrs), {table});
}

}  // namespace braid::ops
