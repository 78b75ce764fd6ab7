#include "braid/ops/sequence.h"

#include <cstring>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

std::vector<ValueType> infer_to_sequence(const Attrs& attrs, TypeList in) {
  const int64_t D = attrs.as<ToSequenceAttrs>().head_dim;
  require_rank("to_sequence", "x", in[0], 2);
  if (D < 1 || in[0].shape[1] % D != 0) {
    fail(ErrorCode::kInvalidArgument, "to_sequence: x is {}, no whole heads of {}",
         to_string(in[0]), D);
  }
  return {{in[0].dtype, {1, in[0].shape[0], in[0].shape[1] / D, D}, BatchAxis::sequence}};
}

std::vector<ValueType> infer_to_tokens(const Attrs&, TypeList in) {
  require_rank("to_tokens", "o", in[0], 4);
  require_dim("to_tokens", "o", in[0], 0, 1);
  return {{in[0].dtype, {in[0].shape[1], in[0].shape[2] * in[0].shape[3]}, BatchAxis::shard}};
}

Cost cost_copy(const Attrs&, TypeList in, TypeList, const Work& work) {
  const ValueType& x = in[0];
  const int64_t rows = x.shape.rank() == 4 ? x.shape[1] : x.shape[0];
  const double bytes = static_cast<double>(bytes_of(x.dtype, x.shape.elems())) /
                       static_cast<double>(std::max<int64_t>(rows, 1));
  return {.bytes = 2 * bytes * static_cast<double>(work.extents.of(BatchAxis::shard, rows))};
}

ShardRule shard_copy(const Attrs&, TypeList, std::span<const Placement>, int) {
  return replicate_all(1, 1);
}

void reference_copy(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const int64_t rows = x.shape.rank() == 4 ? x.shape[1] : x.shape[0];
  std::memcpy(y.data, x.data, x.bytes() / rows * call.extents().shard);
}

void require_cache(std::string_view op, const ValueType& cache) {
  require_rank(op, "cache", cache, 4);
  require_float(op, "cache", cache);
}

std::vector<ValueType> infer_read(const Attrs& attrs, TypeList in) {
  require_rank("kv_read", "slots", in[0], 1);
  require_dtype("kv_read", "slots", in[0], DType::i32);
  std::vector<ValueType> out;
  for (size_t i : {1u, 2u}) {
    require_cache("kv_read", in[i]);
    out.push_back({attrs.as<KvReadAttrs>().dtype,
                   {1, in[0].shape[0], in[i].shape[2], in[i].shape[3]},
                   BatchAxis::sequence});
  }
  return out;
}

std::vector<ValueType> infer_write(const Attrs&, TypeList in) {
  require_dtype("kv_write", "slots", in[2], DType::i32);
  for (size_t i : {0u, 1u}) {
    require_cache("kv_write", in[3 + i]);
    require_rank("kv_write", "k or v", in[i], 4);
    require_dim("kv_write", "k or v", in[i], 1, in[2].shape[0]);
    require_dim("kv_write", "k or v", in[i], 2, in[3 + i].shape[2]);
    require_dim("kv_write", "k or v", in[i], 3, in[3 + i].shape[3]);
  }
  return {};
}

Cost cost_read(const Attrs&, TypeList in, TypeList out, const Work&) {
  const double elems = static_cast<double>(out[0].shape.elems());
  return {.bytes = 2 * elems *
                   static_cast<double>(bytes_of(in[1].dtype, 1) + bytes_of(out[0].dtype, 1))};
}

Cost cost_write(const Attrs&, TypeList in, TypeList, const Work&) {
  const double elems = static_cast<double>(in[0].shape.elems());
  return {.bytes =
              2 * elems * static_cast<double>(bytes_of(in[3].dtype, 1) + bytes_of(in[0].dtype, 1))};
}

ShardRule shard_read(const Attrs&, TypeList, std::span<const Placement>, int) {
  return replicate_all(3, 2);
}

ShardRule shard_write(const Attrs&, TypeList, std::span<const Placement>, int) {
  return replicate_all(5, 0);
}

// Rows of all heads form a row with Hkv * D columns: `from` row i to `to` row j.
void copy_row(const TensorView& from, int64_t i, const TensorView& to, int64_t j) {
  for (int64_t h = 0; h < from.shape[2]; ++h) {
    store_row(to, j * to.shape[2] + h, load_row(from, i * from.shape[2] + h));
  }
}

void reference_read(const OpCall& call) {
  const auto* slots = call.in[0].as<const int32_t>();
  for (int64_t i = 0; i < call.in[0].shape[0]; ++i) {
    for (size_t v : {0u, 1u}) {
      if (slots[i] >= 0) copy_row(call.in[1 + v], slots[i], call.out[v], i);
    }
  }
}

void reference_write(const OpCall& call) {
  const auto* slots = call.in[2].as<const int32_t>();
  for (int64_t i = 0; i < call.in[2].shape[0]; ++i) {
    for (size_t v : {0u, 1u}) {
      if (slots[i] >= 0) copy_row(call.in[v], i, call.in[3 + v], slots[i]);
    }
  }
}

std::vector<ValueType> infer_pick(const Attrs&, TypeList in) {
  require_rank("pick_rows", "x", in[0], 2);
  require_rank("pick_rows", "rows", in[1], 1);
  require_dtype("pick_rows", "rows", in[1], DType::i32);
  return {{in[0].dtype, {in[1].shape[0], in[0].shape[1]}, in[1].axis}};
}

Cost cost_pick(const Attrs&, TypeList, TypeList out, const Work& work) {
  return {.bytes = 2 * live_bytes(out[0], work)};
}

ShardRule shard_pick(const Attrs&, TypeList, std::span<const Placement> placed, int) {
  ShardRule rule = replicate_all(2, 1);
  if (!placed[0].is_shard(0)) return rule;
  rule.inputs[0] = placed[0];
  rule.outputs[0] = Placement::partial();
  return rule;
}

void reference_pick(const OpCall& call) {
  const auto* rows = call.in[1].as<const int32_t>();
  const int64_t first = call.part->begin.of(call.axis, 0);
  for (int64_t i = 0; i < call.extents().row; ++i) {
    const std::vector<float> zeros(call.in[0].cols());
    store_row(call.out[0], i, rows[i] < 0 ? zeros : load_row(call.in[0], rows[i] - first));
  }
}

}  // namespace

const OpDef kToSequence = {.kind = "to_sequence",
                           .infer = infer_to_sequence,
                           .mutated_inputs = {},
                           .cost = cost_copy,
                           .shard = shard_copy,
                           .reference = reference_copy};

const OpDef kToTokens = {.kind = "to_tokens",
                         .infer = infer_to_tokens,
                         .mutated_inputs = {},
                         .cost = cost_copy,
                         .shard = shard_copy,
                         .reference = reference_copy};

const OpDef kKvRead = {.kind = "kv_read",
                       .infer = infer_read,
                       .mutated_inputs = {},
                       .cost = cost_read,
                       .shard = shard_read,
                       .reference = reference_read};

const OpDef kKvWrite = {.kind = "kv_write",
                        .infer = infer_write,
                        .mutated_inputs = {3, 4},
                        .cost = cost_write,
                        .shard = shard_write,
                        .reference = reference_write};

const OpDef kPickRows = {.kind = "pick_rows",
                         .infer = infer_pick,
                         .mutated_inputs = {},
                         .cost = cost_pick,
                         .shard = shard_pick,
                         .reference = reference_pick};

}  // namespace braid::ops
