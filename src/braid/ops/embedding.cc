#include "braid/ops/embedding.h"

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

std::vector<ValueType> infer_embedding(const Attrs& attrs, TypeList in) {
  require_dtype("embedding", "ids", in[0], DType::i32);
  require_rank("embedding", "ids", in[0], 1);
  require_rank("embedding", "table", in[1], 2);
  const auto& a = attrs.as<EmbeddingAttrs>();
  return {{a.dtype, {in[0].shape[0], in[1].shape[1]}, in[0].axis}};
}

Cost cost_embedding(const Attrs&, TypeList, TypeList out, const Work& work) {
  return {.bytes = 2 * live_bytes(out[0], work)};
}

ShardRule shard_embedding(const Attrs&, TypeList, std::span<const Placement> placed, int) {
  ShardRule rule = replicate_all(2, 1);
  if (placed[0].is_shard(0)) rule.inputs[0] = rule.outputs[0] = placed[0];  // token-sharded
  return rule;
}

void reference_embedding(const OpCall& call) {
  const float scale = call.attrs<EmbeddingAttrs>().scale;
  for (int64_t t = 0; t < call.rows(); ++t) {
    std::vector<float> row = load_row(call.in[1], call.in[0].as<const int32_t>()[t]);
    for (float& x : row) x *= scale;
    store_row(call.out[0], t, row);
  }
}

std::vector<ValueType> infer_gather(const Attrs&, TypeList in) {
  require_rank("gather_rows", "x", in[0], 2);
  require_dtype("gather_rows", "rows", in[1], DType::i32);
  return {{in[0].dtype, {in[1].shape[0], in[0].shape[1]}, in[1].axis}};
}

Cost cost_gather(const Attrs&, TypeList, TypeList out, const Work& work) {
  return {.bytes = 2 * live_bytes(out[0], work)};
}

ShardRule shard_gather(const Attrs&, TypeList, std::span<const Placement> placed, int) {
  ShardRule rule = replicate_all(2, 1);
  if (placed[0].is_shard(1)) rule.inputs[0] = rule.outputs[0] = placed[0];
  return rule;
}

void reference_gather(const OpCall& call) {
  const int64_t first_token = call.part->begin.token;
  for (int64_t r = 0; r < call.extents().row; ++r) {
    store_row(call.out[0], r,
              load_row(call.in[0], call.in[1].as<const int32_t>()[r] - first_token));
  }
}

}  // namespace

const OpDef kEmbedding = {.kind = "embedding",
                          .infer = infer_embedding,
                          .cost = cost_embedding,
                          .shard = shard_embedding,
                          .reference = reference_embedding};

const OpDef kGatherRows = {.kind = "gather_rows",
                           .infer = infer_gather,
                           .cost = cost_gather,
                           .shard = shard_gather,
                           .reference = reference_gather};

ValueId embedding(Builder& b, ValueId ids, ValueId table, EmbeddingAttrs attrs) {
  return b.op1(kEmbedding, Attrs::of(attrs), {ids, table});
}

ValueId gather_rows(Builder& b, ValueId x, ValueId rows) {
  return b.op1(kGatherRows, {}, {x, rows});
}

}  // namespace braid::ops
