#include "braid/ops/comm.h"

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
  return {out};
}

double ranks(const Attrs& attrs) {
  return attrs.as<CommAttrs>().ranks;
}

// Each rank sends what the others lack: 2 (P - 1) / P of the value when reduced in two shots.
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

ShardRule shard_replicated(const Attrs&, TypeList, std::span<const Placement>, int) {
  return replicate_all(1, 1);
}

}  // namespace

const OpDef kAllReduce = {
    .kind = "all_reduce", .infer = infer_same, .cost = cost_all_reduce, .shard = shard_replicated};

const OpDef kAllGather = {.kind = "all_gather",
                          .infer = infer_gather,
                          .cost = cost_all_gather,
                          .shard = shard_replicated};

}  // namespace braid::ops
