#include "braid/ops/one_sided.h"

#include <algorithm>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

constexpr int64_t kLineWords = 16;  // i32 in a cache line

void require_block(std::string_view op, std::string_view operand, const ValueType& type,
                   int64_t row, int64_t head, const Move& move) {
  require_rank(op, operand, type, 4);
  if (move.rows >= 0 && row >= 0 && row + move.rows <= type.shape[1] && move.heads >= 0 &&
      head >= 0 && head + move.heads <= type.shape[2]) {
    return;
  }
  fail(ErrorCode::kInvalidArgument, "{}: rows {}..{} and heads {}..{} of {}, which is {}", op, row,
       row + move.rows, head, head + move.heads, operand, to_string(type));
}

std::vector<ValueType> infer_moves(std::string_view op, const Attrs& attrs, TypeList in) {
  for (const Move& move : attrs.as<MoveAttrs>().moves) {
    const ValueType& src = in[move.src];
    const ValueType& dst = in[move.dst];
    require_block(op, "the source", src, move.src_row, move.src_head, move);
    require_block(op, "the destination", dst, move.dst_row, move.dst_head, move);
    require_dim(op, "the destination", dst, 3, src.shape[3]);
    require_dtype(op, "the destination", dst, src.dtype);
  }
  return {};
}

std::vector<ValueType> infer_pull(const Attrs& attrs, TypeList in) {
  return infer_moves("pull", attrs, in);
}

std::vector<ValueType> infer_push(const Attrs& attrs, TypeList in) {
  return infer_moves("push", attrs, in);
}

std::vector<Transfer> transfers_of(const Attrs& attrs, TypeList in, const Work& work,
                                   bool incoming) {
  const auto& a = attrs.as<MoveAttrs>();
  std::vector<Transfer> transfers;
  for (const Move& move : a.moves) {
    const ValueType& type = in[move.src];
    const auto B = static_cast<double>(work.extents.of(type.axis, type.shape[0]));
    transfers.push_back(
        {.peer = move.peer,
         .incoming = incoming,
         .bytes = B * static_cast<double>(bytes_of(type.dtype, move.elems(type.shape[3])))});
  }
  for (int peer : a.told) transfers.push_back({.peer = peer});
  return transfers;
}

Cost cost_moves(const Attrs& attrs, TypeList in, TypeList, const Work& work) {
  double bytes = 0;
  for (const Transfer& transfer : transfers_of(attrs, in, work, false)) bytes += transfer.bytes;
  return {.bytes = 2 * bytes, .wire_bytes = bytes};
}

std::vector<Transfer> pulled(const Attrs& attrs, TypeList in, const Work& work) {
  return transfers_of(attrs, in, work, true);
}

std::vector<Transfer> pushed(const Attrs& attrs, TypeList in, const Work& work) {
  return transfers_of(attrs, in, work, false);
}

int sync_ranks(const Attrs& attrs) {
  return attrs.as<SyncAttrs>().ranks();
}

std::vector<ValueType> infer_sync(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<SyncAttrs>();
  BRAID_CHECK(in.size() >= kSyncFirstClosed + kSyncMaxClosed, "{} inputs", in.size());
  for (int index : a.opened_arrivals) {
    BRAID_CHECK(a.opens.at(index).dtype == DType::i32);
  }
  return a.opens;
}

Cost cost_sync(const Attrs&, TypeList, TypeList, const Work&) {
  return {};
}

ShardRule no_rule(const Attrs&, TypeList in, std::span<const Placement>, int) {
  return replicate_all(in.size(), 0);
}

ShardRule sync_rule(const Attrs& attrs, TypeList in, std::span<const Placement>, int) {
  return replicate_all(in.size(), attrs.as<SyncAttrs>().opens.size());
}

}  // namespace

std::vector<int> MoveAttrs::peers() const {
  std::vector<int> all;
  const auto add = [&](int peer) {
    if (std::ranges::count(all, peer) == 0) all.push_back(peer);
  };
  for (const Move& move : moves) add(move.peer);
  for (int peer : told) add(peer);
  return all;
}

ValueType arrivals_type(int world) {
  return {DType::i32, {world, kLineWords}, BatchAxis::none};
}

const OpDef kPull = {.kind = "pull",
                     .infer = infer_pull,
                     .mutated_inputs = {0, 1},
                     .cost = cost_moves,
                     .shard = no_rule,
                     .one_sided = true,
                     .remote = RemoteUse::pulls,
                     .transfers = pulled};

const OpDef kPush = {.kind = "push",
                     .infer = infer_push,
                     .mutated_inputs = {},
                     .cost = cost_moves,
                     .shard = no_rule,
                     .one_sided = true,
                     .remote = RemoteUse::pushes,
                     .transfers = pushed};

std::vector<ValueId> sync_inputs(const std::vector<ValueId>& kept,
                                 const std::vector<ValueId>& closed, ValueId arrivals) {
  BRAID_CHECK(!kept.empty() && closed.size() <= kSyncMaxClosed, "{} kept, {} closed", kept.size(),
              closed.size());
  std::vector<ValueId> inputs(kSyncFirstClosed + kSyncMaxClosed, kNoValue);
  inputs[0] = kept[0];
  inputs[kSyncArrivals] = arrivals;
  std::ranges::copy(closed, inputs.begin() + kSyncFirstClosed);
  inputs.insert(inputs.end(), kept.begin() + 1, kept.end());
  return inputs;
}

const OpDef kSync = {.kind = "sync",
                     .infer = infer_sync,
                     .mutated_inputs = {1, 2, 3, 4, 5, 6, 7},
                     .cost = cost_sync,
                     .shard = sync_rule,
                     .remote = RemoteUse::meets,
                     .collective = {.ranks = sync_ranks}};

}  // namespace braid::ops
