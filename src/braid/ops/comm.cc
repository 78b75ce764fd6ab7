#include "braid/ops/comm.h"

#include <cstring>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

std::vector<ValueType> infer_same(const Attrs&, TypeList in) {
  return {in[0]};
}

std::vector<ValueType> infer_gather(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<CommAttrs>();
  ValueType out = in[0];
  out.shape[a.dim] = 0;
  for (const Range& part : a.parts) out.shape[a.dim] = std::max(out.shape[a.dim], part.end);
  if (in[0].axis == BatchAxis::shard && a.dim == 0) {
    out.axis = BatchAxis::token;
    if (a.parts != token_parts(out.shape[0], a.ranks) ||
        token_shard_of("all_gather", out, a.ranks) != in[0]) {
      fail(ErrorCode::kInvalidArgument, "all_gather: x is {}, not a part of {} over {} ranks",
           to_string(in[0]), to_string(out), a.ranks);
    }
  }
  return {out};
}

std::vector<ValueType> infer_reduce_scatter(const Attrs& attrs, TypeList in) {
  require_float("reduce_scatter", "x", in[0]);
  return {token_shard_of("reduce_scatter", in[0], attrs.as<CommAttrs>().ranks)};
}

std::vector<ValueType> infer_take_shard(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<TakeShardAttrs>();
  if (a.columns.empty()) return {token_shard_of("take_shard", in[0], a.ranks)};
  require_rank("take_shard", "x", in[0], 2);
  const Range part = a.columns.at(a.rank);
  if (part.end > in[0].shape[1]) {
    fail(ErrorCode::kInvalidArgument, "take_shard: x is {}, wanted columns {}..{}",
         to_string(in[0]), part.begin, part.end);
  }
  return {{in[0].dtype, {in[0].shape[0], part.size()}, in[0].axis}};
}

double ranks(const Attrs& attrs) {
  return attrs.as<CommAttrs>().ranks;
}

// Each rank sends the parts that others lack: 2 (P - 1) / P of the value when reduced in two shots.
Cost cost_all_reduce(const Attrs& attrs, TypeList in, TypeList, const Work& work) {
  const double P = ranks(attrs), bytes = live_bytes(in[0], work);
  return {.flops = live_elems(in[0], work) * (P - 1) / P,
          .bytes = 2 * bytes,
          .wire_bytes = 2 * bytes * (P - 1) / P};
}

Cost cost_all_gather(const Attrs& attrs, TypeList in, TypeList out, const Work& work) {
  return {.bytes = live_bytes(in[0], work) + live_bytes(out[0], work),
          .wire_bytes = live_bytes(in[0], work) * (ranks(attrs) - 1)};
}

Cost cost_reduce_scatter(const Attrs& attrs, TypeList in, TypeList out, const Work& work) {
  const double whole = live_bytes(in[0], work), part = live_bytes(out[0], work);
  return {.flops = live_elems(out[0], work) * (ranks(attrs) - 1),
          .bytes = whole + part,
          .wire_bytes = whole - part};
}

Cost cost_take_shard(const Attrs&, TypeList, TypeList out, const Work& work) {
  return {.bytes = 2 * live_bytes(out[0], work)};
}

ShardRule shard_replicated(const Attrs&, TypeList, std::span<const Placement>, int) {
  return replicate_all(1, 1);
}

Attrs localize_take_shard(const Attrs& attrs, TypeList, const ShardRule&, int rank) {
  auto local = attrs.as<TakeShardAttrs>();
  local.rank = rank;
  return Attrs::of(local);
}

void reference_take_shard(const OpCall& call) {
  const auto& a = call.attrs<TakeShardAttrs>();
  const bool rows_alone = a.columns.empty();
  const Range rows = rows_alone ? even_part(call.rows(), a.ranks, a.rank) : Range{0, call.rows()};
  const int64_t column = rows_alone ? 0 : a.columns[a.rank].begin;
  for (int64_t i = 0; i < rows.size(); ++i) {
    std::memcpy(call.out[0].row(i),
                call.in[0].row(rows.begin + i) + bytes_of(call.in[0].dtype, column),
                static_cast<size_t>(bytes_of(call.out[0].dtype, call.out[0].cols())));
  }
}

int ranks_of(const Attrs& attrs) {
  return attrs.as<CommAttrs>().ranks;
}

}  // namespace

const OpDef kAllReduce = {.kind = "all_reduce",
                          .infer = infer_same,
                          .cost = cost_all_reduce,
                          .shard = shard_replicated,
                          .collective = {.ranks = ranks_of, .sums = true}};

const OpDef kAllGather = {.kind = "all_gather",
                          .infer = infer_gather,
                          .cost = cost_all_gather,
                          .shard = shard_replicated,
                          .collective = {.ranks = ranks_of}};

const OpDef kReduceScatter = {.kind = "reduce_scatter",
                              .infer = infer_reduce_scatter,
                              .cost = cost_reduce_scatter,
                              .shard = shard_replicated,
                              .collective = {.ranks = ranks_of}};

const OpDef kTakeShard = {.kind = "take_shard",
                          .infer = infer_take_shard,
                          .cost = cost_take_shard,
                          .shard = shard_replicated,
                          .localize = localize_take_shard,
                          .reference = reference_take_shard};

std::vector<Range> token_parts(int64_t T, int P) {
  std::vector<Range> parts;
  for (int r = 0; r < P; ++r) parts.push_back(even_part(T, P, r));
  return parts;
}

ValueType token_shard_of(std::string_view op, const ValueType& x, int P) {
  require_rank(op, "x", x, 2);
  if (x.axis != BatchAxis::token) {
    fail(ErrorCode::kInvalidArgument, "{}: x is {}, wanted the token axis", op, to_string(x));
  }
  return {x.dtype, {ceil_div(x.shape[0], P), x.shape[1]}, BatchAxis::shard};
}

}  // namespace braid::ops
