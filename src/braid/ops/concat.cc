#include "braid/ops/concat.h"

#include <algorithm>
#include <cstring>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

void require_part(std::string_view op, const ValueType& part, const ValueType& first) {
  require_rank(op, "part", part, 2);
  require_float(op, "part", part);
  require_dtype(op, "part", part, first.dtype);
}

void require_sequences(std::string_view op, const ValueType& type, int64_t batch) {
  if (batch > 0 && type.shape[0] % batch == 0) return;
  fail(ErrorCode::kInvalidArgument, "{}: {} has no whole rows for each of {} sequences", op,
       to_string(type), batch);
}

std::vector<ValueType> infer_rows(const Attrs& attrs, TypeList in) {
  ValueType out = in[0];
  out.shape[0] = 0;
  for (const ValueType& part : in) {
    require_part("concat_rows", part, in[0]);
    require_dim("concat_rows", "part", part, 1, in[0].shape[1]);
    require_sequences("concat_rows", part, attrs.as<SequenceRowsAttrs>().batch);
    out.shape[0] += part.shape[0];
  }
  return {out};
}

std::vector<ValueType> infer_take(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<TakeRowsAttrs>();
  require_part("take_rows", in[0], in[0]);
  require_sequences("take_rows", in[0], a.batch);
  const int64_t L = in[0].shape[0] / a.batch;
  if (a.begin < 0 || a.rows < 0 || a.begin + a.rows > L) {
    fail(ErrorCode::kInvalidArgument, "take_rows: rows {}..{} of {} in each sequence of {}",
         a.begin, a.begin + a.rows, L, to_string(in[0]));
  }
  return {{in[0].dtype, {a.batch * a.rows, in[0].shape[1]}, in[0].axis}};
}

std::vector<ValueType> infer_columns(const Attrs&, TypeList in) {
  ValueType out = in[0];
  out.shape[1] = 0;
  for (const ValueType& part : in) {
    require_part("concat_columns", part, in[0]);
    require_dim("concat_columns", "part", part, 0, in[0].shape[0]);
    out.shape[1] += part.shape[1];
  }
  return {out};
}

std::vector<ValueType> infer_reshape(const Attrs& attrs, TypeList in) {
  const int64_t columns = attrs.as<ReshapeRowsAttrs>().columns;
  require_part("reshape_rows", in[0], in[0]);
  const int64_t elems = in[0].shape.elems();
  if (columns < 1 || elems % columns != 0) {
    fail(ErrorCode::kInvalidArgument, "reshape_rows: {} in rows of {} columns", to_string(in[0]),
         columns);
  }
  return {{in[0].dtype, {elems / columns, columns}, in[0].axis}};
}

Cost cost(const Attrs&, TypeList, TypeList out, const Work& work) {
  return {.bytes = 2 * live_bytes(out[0], work)};
}

// A divided sequence's rows stay in place if each rank's rows are neighbours in the joined value.
ShardRule shard_rows(const Attrs& attrs, TypeList in, std::span<const Placement> placed, int P) {
  ShardRule rule = replicate_all(in.size(), 1);
  if (attrs.as<SequenceRowsAttrs>().batch != 1) return rule;
  for (const Placement& p : placed) {
    if (!p.is_shard(0)) return rule;
  }
  std::vector<Range> joined;
  for (int r = 0; r < P; ++r) {
    Range rows{0, 0};
    int64_t begin = 0;
    for (size_t i = 0; i < in.size(); begin += in[i].shape[0], ++i) {
      const Range& part = placed[i].parts[r];
      if (part.empty()) continue;
      if (rows.empty()) rows = {begin + part.begin, begin + part.begin};
      if (rows.end != begin + part.begin) return rule;
      rows.end += part.size();
    }
    joined.push_back(rows);
  }
  return {{placed.begin(), placed.end()}, {Placement::shard(0, std::move(joined))}};
}

// A rank's share in the taken rows, as logical rows.
Range taken(const TakeRowsAttrs& a, const Range& own) {
  const int64_t begin = std::clamp(a.begin, own.begin, own.end);
  return {begin, std::clamp(a.begin + a.rows, begin, own.end)};
}

ShardRule shard_take(const Attrs& attrs, TypeList, std::span<const Placement> placed, int) {
  const auto& a = attrs.as<TakeRowsAttrs>();
  if (a.batch != 1 || !placed[0].is_shard(0)) return replicate_all(1, 1);
  std::vector<Range> parts;
  for (const Range& own : placed[0].parts) {
    const Range rows = taken(a, own);
    const int64_t begin = std::clamp<int64_t>(rows.begin - a.begin, 0, a.rows);
    parts.push_back({begin, begin + rows.size()});
  }
  return {{placed[0]}, {Placement::shard(0, std::move(parts))}};
}

Attrs localize_take(const Attrs& attrs, TypeList, const ShardRule& rule, int rank) {
  if (!rule.inputs[0].is_shard(0)) return attrs;
  const Range& own = rule.inputs[0].parts[rank];
  const Range rows = taken(attrs.as<TakeRowsAttrs>(), own);
  return Attrs::of(TakeRowsAttrs{.begin = rows.begin - own.begin, .rows = rows.size()});
}

// Joined rows stay on the ranks that hold all parts' rows.
ShardRule shard_columns(const Attrs&, TypeList in, std::span<const Placement> placed, int) {
  if (!placed[0].is_shard(0)) return replicate_all(in.size(), 1);
  return {std::vector<Placement>(in.size(), placed[0]), {placed[0]}};
}

// Mostly no launch moves anything (keeps_place).
Cost cost_reshape(const Attrs&, TypeList, TypeList, const Work&) {
  return {};
}

// Ranks keep their rows if these are whole rows of either form.
ShardRule shard_reshape(const Attrs& attrs, TypeList in, std::span<const Placement> placed, int) {
  if (!placed[0].is_shard(0)) return replicate_all(1, 1);
  const int64_t from = in[0].shape[1], to = attrs.as<ReshapeRowsAttrs>().columns;
  std::vector<Range> parts;
  for (const Range& own : placed[0].parts) {
    const int64_t begin = own.begin * from, end = own.end * from;
    if (begin % to != 0 || end % to != 0) return replicate_all(1, 1);
    parts.push_back({begin / to, end / to});
  }
  return {{placed[0]}, {Placement::shard(0, std::move(parts))}};
}

void copy_rows(const TensorView& from, int64_t begin, const TensorView& to, int64_t at,
               int64_t rows) {
  std::memcpy(to.row(at), from.row(begin), rows * from.row_bytes);
}

void reference_rows(const OpCall& call) {
  const int64_t batch = call.attrs<SequenceRowsAttrs>().batch;
  int64_t at = 0;
  for (int64_t b = 0; b < batch; ++b) {
    for (const TensorView& part : call.in) {
      const int64_t L = part.shape[0] / batch;
      copy_rows(part, b * L, call.out[0], at, L);
      at += L;
    }
  }
}

void reference_take(const OpCall& call) {
  const auto& a = call.attrs<TakeRowsAttrs>();
  const int64_t L = call.in[0].shape[0] / a.batch;
  for (int64_t b = 0; b < a.batch; ++b) {
    copy_rows(call.in[0], (b * L) + a.begin, call.out[0], b * a.rows, a.rows);
  }
}

void reference_columns(const OpCall& call) {
  for (int64_t t = 0; t < call.rows(); ++t) {
    std::byte* to = call.out[0].row(t);
    for (const TensorView& part : call.in) {
      std::memcpy(to, part.row(t), part.row_bytes);
      to += part.row_bytes;
    }
  }
}

void reference_reshape(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  if (y.data != x.data) std::memcpy(y.data, x.data, x.bytes());
}

}  // namespace

const OpDef kConcatRows = {.kind = "concat_rows",
                           .infer = infer_rows,
                           .mutated_inputs = {},
                           .cost = cost,
                           .shard = shard_rows,
                           .reference = reference_rows};

const OpDef kTakeRows = {.kind = "take_rows",
                         .infer = infer_take,
                         .mutated_inputs = {},
                         .cost = cost,
                         .shard = shard_take,
                         .localize = localize_take,
                         .reference = reference_take};

const OpDef kConcatColumns = {.kind = "concat_columns",
                              .infer = infer_columns,
                              .mutated_inputs = {},
                              .cost = cost,
                              .shard = shard_columns,
                              .reference = reference_columns};

const OpDef kReshapeRows = {.kind = "reshape_rows",
                            .infer = infer_reshape,
                            .mutated_inputs = {},
                            .cost = cost_reshape,
                            .shard = shard_reshape,
                            .reference = reference_reshape};

ValueId concat_rows(Builder& b, const std::vector<ValueId>& parts, int64_t batch) {
  return b.op1(kConcatRows, Attrs::of(SequenceRowsAttrs{batch}), parts);
}

ValueId take_rows(Builder& b, ValueId x, const TakeRowsAttrs& attrs) {
  return b.op1(kTakeRows, Attrs::of(attrs), {x});
}

ValueId concat_columns(Builder& b, const std::vector<ValueId>& parts) {
  return b.op1(kConcatColumns, {}, parts);
}

ValueId reshape_rows(Builder& b, ValueId x, int64_t columns) {
  return b.op1(kReshapeRows, Attrs::of(ReshapeRowsAttrs{columns}), {x});
}

}  // namespace braid::ops
