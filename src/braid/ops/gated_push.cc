#include "braid/ops/gated_push.h"

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

const OpDef& push_of(const GatedPushAttrs& a) {
  return a.returns ? kReturnRows : kDispatch;
}

std::vector<ValueType> infer(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<GatedPushAttrs>();
  BRAID_CHECK(in.size() > kGatedPushFirst);
  push_of(a).infer(Attrs::of(a.exchange), in.subspan(kGatedPushFirst));
  return kExpertGated.infer(Attrs::of(GatedAttrs{a.activation}), in.first(kGatedPushFirst));
}

// Both at the same work: their micro-batches are about even.
Cost cost(const Attrs& attrs, TypeList in, TypeList out, const Work& work) {
  const auto& a = attrs.as<GatedPushAttrs>();
  Cost sum =
      kExpertGated.cost(Attrs::of(GatedAttrs{a.activation}), in.first(kGatedPushFirst), out, work);
  sum += push_of(a).cost(Attrs::of(a.exchange), in.subspan(kGatedPushFirst), {}, work);
  return sum;
}

ShardRule no_rule(const Attrs&, TypeList in, std::span<const Placement>, int) {
  return replicate_all(in.size(), 0);
}

std::vector<Transfer> pushed(const Attrs& attrs, TypeList in, const Work& work) {
  const auto& a = attrs.as<GatedPushAttrs>();
  return push_of(a).transfers(Attrs::of(a.exchange), in.subspan(kGatedPushFirst), work);
}

}  // namespace

const OpDef kGatedPush = {.kind = "gated_push",
                          .infer = infer,
                          .cost = cost,
                          .shard = no_rule,
                          .one_sided = true,
                          .remote = RemoteUse::pushes,
                          .transfers = pushed,
                          .collective = {.computes = true, .products = true},
                          .rate = {.kind = "expert_gated", .typed_input = 3}};

std::optional<Op> make_gated_push(const Program&, std::span<const Op> ops) {
  const Op &gated = ops[0], &push = ops[1];
  Op op{&kGatedPush,
        Attrs::of(GatedPushAttrs{push.attrs.as<ExchangeAttrs>(), push.def == &kReturnRows,
                                 gated.attrs.as<GatedAttrs>().activation}),
        gated.inputs,
        gated.outputs,
        gated.scope,
        gated.tag};
  op.inputs.insert(op.inputs.end(), push.inputs.begin(), push.inputs.end());
  return op;
}

}  // namespace braid::ops
