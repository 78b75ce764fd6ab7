#include "braid/ops/join_sequence.h"

#include <cstring>

#include "braid/ops/concat.h"
#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

// A part's rows and columns.
struct Rows {
  int64_t n = 0;
  int64_t columns = 0;
};
Rows rows_of(const ValueType& part) {
  if (part.shape.rank() == 4) {
    return {part.shape[0] * part.shape[1], part.shape[2] * part.shape[3]};
  }
  require_rank("join_sequence", "part", part, 2);
  return {part.shape[0], part.shape[1]};
}

std::vector<ValueType> infer_join(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<JoinSequenceAttrs>();
  const int64_t columns = rows_of(in[0]).columns;
  int64_t rows = 0;
  for (const ValueType& part : in) {
    require_dtype("join_sequence", "part", part, in[0].dtype);
    const Rows more = rows_of(part);
    if (more.columns != columns) require_dim("join_sequence", "part", part, 1, columns);
    rows += more.n;
  }
  if (a.head_dim < 1 || columns % a.head_dim != 0 || rows > a.rows) {
    fail(ErrorCode::kInvalidArgument, "join_sequence: {} rows of {} in heads of {}, room for {}",
         rows, to_string(in[0]), a.head_dim, a.rows);
  }
  return {{in[0].dtype, {1, a.rows, columns / a.head_dim, a.head_dim}, BatchAxis::sequence}};
}

std::vector<ValueType> infer_cut(const Attrs& attrs, TypeList in) {
  require_rank("cut_sequence", "o", in[0], 4);
  require_dim("cut_sequence", "o", in[0], 0, 1);
  std::vector<ValueType> out;
  int64_t rows = 0;
  const auto& a = attrs.as<CutSequenceAttrs>();
  for (int64_t n : a.rows) {
    out.push_back({in[0].dtype, {n, in[0].shape[2] * in[0].shape[3]}, a.axis});
    rows += n;
  }
  if (rows > in[0].shape[1]) {
    fail(ErrorCode::kInvalidArgument, "cut_sequence: {} rows of {}", rows, to_string(in[0]));
  }
  return out;
}

// A single part lies where the whole does (schedule/value_views.h).
Cost cost_join(const Attrs&, TypeList in, TypeList, const Work& work) {
  Cost cost;
  if (in.size() == 1) return cost;
  for (const ValueType& part : in) cost.bytes += 2 * live_bytes(part, work);
  return cost;
}

Cost cost_cut(const Attrs& attrs, TypeList, TypeList out, const Work& work) {
  return cost_join(attrs, out, {}, work);
}

ShardRule whole(const Attrs&, TypeList in, std::span<const Placement>, int) {
  return replicate_all(in.size(), 1);
}

ShardRule whole_cut(const Attrs& attrs, TypeList, std::span<const Placement>, int) {
  return replicate_all(1, attrs.as<CutSequenceAttrs>().rows.size());
}

void reference_join(const OpCall& call) {
  std::byte* to = call.out[0].data;
  for (const TensorView& part : call.in) {
    if (to != part.data) std::memcpy(to, part.data, part.bytes());
    to += part.bytes();
  }
}

void reference_cut(const OpCall& call) {
  const std::byte* from = call.in[0].data;
  for (const TensorView& part : call.out) {
    if (from != part.data) std::memcpy(part.data, from, part.bytes());
    from += part.bytes();
  }
}

}  // namespace

bool keeps_place(const Op& op) {
  return (op.def == &kJoinSequence || op.def == &kCutSequence || op.def == &kReshapeRows) &&
         op.inputs.size() == 1 && op.outputs.size() == 1;
}

const OpDef kJoinSequence = {.kind = "join_sequence",
                             .infer = infer_join,
                             .mutated_inputs = {},
                             .cost = cost_join,
                             .shard = whole,
                             .reference = reference_join};

const OpDef kCutSequence = {.kind = "cut_sequence",
                            .infer = infer_cut,
                            .mutated_inputs = {},
                            .cost = cost_cut,
                            .shard = whole_cut,
                            .reference = reference_cut};

}  // namespace braid::ops
