#include "braid/ops/rope_append.h"

#include <array>

#include "braid/ops/attention.h"
#include "braid/ops/norm.h"
#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

enum Input : size_t { kQ, kK, kV, kPositions, kFactors, kSlots, kCacheK, kCacheV, kQNorm, kKNorm };

std::vector<ValueType> infer(const Attrs& attrs, TypeList in) {
  const RopeAttrs& rope = attrs.as<RopeAppendAttrs>().rope;
  const std::array append_in = {in[kK], in[kV], in[kSlots], in[kCacheK], in[kCacheV]};
  kKvAppend.infer(Attrs::of(KvAppendAttrs{rope.head_dim}), append_in);
  const std::array rope_in = {in[kQ], in[kPositions], in[kFactors]};
  return kRope.infer(Attrs::of(rope), rope_in);
}

Cost cost(const Attrs&, TypeList in, TypeList out, const Work& work) {
  Cost cost = elementwise_cost(in.first(3), out, work, 3);
  cost.bytes += 2 * live_bytes(in[kK], work);
  return cost;
}

ShardRule shard(const Attrs& attrs, TypeList in, std::span<const Placement> placed, int P) {
  const int64_t head_dim = attrs.as<RopeAppendAttrs>().rope.head_dim;
  const std::array append_placed = {placed[kK], placed[kV], placed[kSlots], placed[kCacheK],
                                    placed[kCacheV]};
  const ShardRule append =
      kKvAppend.shard(Attrs::of(KvAppendAttrs{head_dim}), in, append_placed, P);
  ShardRule rule = replicate_all(in.size(), 1);
  rule.inputs[kK] = append.inputs[0];
  rule.inputs[kV] = append.inputs[1];
  rule.inputs[kCacheK] = append.inputs[3];
  rule.inputs[kCacheV] = append.inputs[4];
  if (placed[kQ].is_shard(1)) rule.inputs[kQ] = rule.outputs[0] = placed[kQ];
  return rule;
}

// A projection's norm and rope, into `out` and from `out` on in place.
void turn(const OpCall& call, Input x, Input norm, const TensorView& out) {
  const auto& attrs = call.attrs<RopeAppendAttrs>();
  TensorView from = call.in[x];
  if (call.in[norm].data) {
    const Op op = {.attrs = Attrs::of(RmsNormAttrs{attrs.eps, attrs.rope.head_dim})};
    const TensorView in[] = {from, call.in[norm]};
    kRmsNorm.reference({&op, in, {&out, 1}, call.axis, call.part});
    from = out;
  }
  const Op op = {.attrs = Attrs::of(attrs.rope)};
  const TensorView in[] = {from, call.in[kPositions], call.in[kFactors]};
  kRope.reference({&op, in, {&out, 1}, call.axis, call.part});
}

void reference(const OpCall& call) {
  turn(call, kQ, kQNorm, call.out[0]);
  const TensorView& k = call.in[kK];
  std::vector<std::byte> bytes(k.bytes());
  const TensorView turned = make_view(bytes.data(), k.dtype, k.shape);
  turn(call, kK, kKNorm, turned);
  const Op op = {.attrs = Attrs::of(KvAppendAttrs{call.attrs<RopeAppendAttrs>().rope.head_dim})};
  const TensorView in[] = {turned, call.in[kV], call.in[kSlots], call.in[kCacheK],
                           call.in[kCacheV]};
  kKvAppend.reference({&op, in, {}, call.axis, call.part});
}

}  // namespace

const OpDef kRopeAppend = {.kind = "rope_append",
                           .infer = infer,
                           .mutated_inputs = {kCacheK, kCacheV},
                           .cost = cost,
                           .shard = shard,
                           .reference = reference};

}  // namespace braid::ops
