#include "braid/ops/timestep.h"

#include <cmath>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

std::vector<ValueType> infer(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<TimestepEmbeddingAttrs>();
  require_rank("timestep_embedding", "t", in[0], 1);
  require_dtype("timestep_embedding", "t", in[0], DType::f32);
  if (a.dim < 2) {
    fail(ErrorCode::kInvalidArgument, "timestep_embedding: dim is {}, at least 2 is wanted", a.dim);
  }
  return {{DType::f32, {in[0].shape[0], a.dim}, in[0].axis}};
}

Cost cost(const Attrs&, TypeList in, TypeList out, const Work& work) {
  return elementwise_cost(in, out, work, 20);
}

ShardRule shard(const Attrs&, TypeList, std::span<const Placement>, int) {
  return replicate_all(1, 1);
}

void reference(const OpCall& call) {
  const auto& a = call.attrs<TimestepEmbeddingAttrs>();
  const int64_t half = a.dim / 2;
  const auto rate = static_cast<float>(-std::log(static_cast<double>(a.max_period)));
  for (int64_t n = 0; n < call.rows(); ++n) {
    const float t = call.in[0].as<const float>()[n];
    float* y = call.out[0].row_as<float>(n);
    if (a.dim % 2 != 0) y[a.dim - 1] = 0;
    for (int64_t i = 0; i < half; ++i) {
      const float exponent = rate * static_cast<float>(i) / (static_cast<float>(half) - a.shift);
      const float angle = t * std::exp(exponent);
      y[a.cosines_first ? i : half + i] = std::cos(angle);
      y[a.cosines_first ? half + i : i] = std::sin(angle);
    }
  }
}

}  // namespace

const OpDef kTimestepEmbedding = {.kind = "timestep_embedding",
                                  .infer = infer,
                                  .mutated_inputs = {},
                                  .cost = cost,
                                  .shard = shard,
                                  .reference = reference};

ValueId timestep_embedding(Builder& b, ValueId t, const TimestepEmbeddingAttrs& attrs) {
  return b.op1(kTimestepEmbedding, Attrs::of(attrs), {t});
}

}  // namespace braid::ops
