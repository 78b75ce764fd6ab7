#include "braid/ops/expert_tiles.h"

#include <algorithm>

#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

namespace gated_in {
enum Input : size_t { kArrivals, kX, kBack, kRows, kToken, kBegin, kWeights, kCount = 10 };
}
namespace return_in {
enum Input : size_t {
  kArrivals,
  kChosen,
  kH,
  kReturned,
  kWeight,
  kPlace,
  kBegin,
  kW,
  kBias,
  kToken,
  kCount
};
}

ShardRule no_rule(const Attrs&, TypeList in, std::span<const Placement>, int) {
  return replicate_all(in.size(), 0);
}

// The products' operands among the fused ops' operands.
std::vector<ValueType> of_gated(TypeList in) {
  using namespace gated_in;
  std::vector<ValueType> types = {in[kRows], in[kToken], in[kBegin]};
  types.insert(types.end(), in.begin() + kWeights, in.end());
  return types;
}
std::vector<ValueType> of_linear(TypeList in) {
  using namespace return_in;
  return {in[kH], in[kBegin], in[kW], in[kBias]};
}

std::vector<ValueType> infer_gated(const Attrs& attrs, TypeList in) {
  BRAID_CHECK(in.size() == gated_in::kCount);
  const auto& a = attrs.as<DispatchGatedAttrs>();
  return kExpertGated.infer(Attrs::of(GatedAttrs{a.activation}), of_gated(in));
}

std::vector<ValueType> infer_return(const Attrs&, TypeList in) {
  BRAID_CHECK(in.size() == return_in::kCount);
  return {};
}

// Weights cost again for each tile behind the first: a tile reads all its experts anew.
Cost by_tiles(Cost cost, const ExchangeAttrs& exchange, double weights) {
  cost.bytes += (exchange.ranks() - 1) * weights;
  return cost;
}

Cost cost_gated(const Attrs& attrs, TypeList in, TypeList out, const Work& work) {
  const auto& a = attrs.as<DispatchGatedAttrs>();
  const std::vector<ValueType> types = of_gated(in);
  Cost cost = kExpertGated.cost(Attrs::of(GatedAttrs{a.activation}), types, out, work);
  cost += kDispatch.cost(Attrs::of(a.exchange), in, {}, work);
  return by_tiles(cost, a.exchange, cost.bytes - live_bytes(in[gated_in::kRows], work));
}

Cost cost_linear_return(const Attrs& attrs, TypeList in, TypeList, const Work& work) {
  const auto& a = attrs.as<LinearReturnAttrs>();
  const std::vector<ValueType> types = of_linear(in),
                               out = kExpertLinear.infer(Attrs::of(ExpertLinearAttrs{}), types);
  Cost cost = kExpertLinear.cost(Attrs::of(ExpertLinearAttrs{}), types, out, work);
  const double product = cost.bytes;
  const std::vector<ValueType> sums = {
      in[return_in::kWeight], in[return_in::kPlace], out[0], {}, {}};
  ValueType z = in[return_in::kReturned];
  z.shape[0] = in[return_in::kWeight].shape[0];
  cost += kCombine.cost(Attrs::of(CombineAttrs{}), sums, {&z, 1}, work);
  cost += kReturnRows.cost(Attrs::of(a.exchange), in, {}, work);
  return by_tiles(cost, a.exchange, product - live_bytes(out[0], work));
}

std::vector<Transfer> dispatched(const Attrs& attrs, TypeList in, const Work& work) {
  return kDispatch.transfers(Attrs::of(attrs.as<DispatchGatedAttrs>().exchange), in, work);
}
std::vector<Transfer> returned(const Attrs& attrs, TypeList in, const Work& work) {
  return kReturnRows.transfers(Attrs::of(attrs.as<LinearReturnAttrs>().exchange), in, work);
}

// The program's first op that makes `id`, or null.
const Op* maker(const Program& program, ValueId id) {
  const auto it = std::ranges::find_if(
      program.ops, [&](const Op& op) { return std::ranges::count(op.outputs, id) > 0; });
  return it == program.ops.end() ? nullptr : &*it;
}

}  // namespace

const OpDef kDispatchGated = {.kind = "dispatch_gated",
                              .infer = infer_gated,
                              .cost = cost_gated,
                              .shard = no_rule,
                              .one_sided = true,
                              .remote = RemoteUse::pushes,
                              .transfers = dispatched,
                              .collective = {.computes = true, .products = true},
                              .rate = {.kind = "expert_gated", .typed_input = gated_in::kWeights}};

const OpDef kLinearReturn = {.kind = "linear_return",
                             .infer = infer_return,
                             .cost = cost_linear_return,
                             .shard = no_rule,
                             .one_sided = true,
                             .remote = RemoteUse::pushes,
                             .transfers = returned,
                             .collective = {.computes = true, .products = true},
                             .rate = {.kind = "expert_linear", .typed_input = return_in::kW}};

std::optional<Op> make_dispatch_gated(const Program&, std::span<const Op> run) {
  const Op &dispatch = run[0], &sync = run[1], &gated = run[2];
  const ValueId rows = dispatch.inputs[3];
  if (sync.inputs[kSyncArrivals] != dispatch.inputs[0] || !sync.outputs.empty() ||
      sync.inputs[kSyncFirstClosed] != rows || gated.inputs[0] != rows) {
    return std::nullopt;
  }
  Op op{&kDispatchGated,
        Attrs::of(DispatchGatedAttrs{dispatch.attrs.as<ExchangeAttrs>(),
                                     gated.attrs.as<GatedAttrs>().activation}),
        dispatch.inputs,
        gated.outputs,
        gated.scope,
        gated.tag};
  op.inputs.insert(op.inputs.end(), gated.inputs.begin() + 1, gated.inputs.end());
  return op;
}

std::optional<Op> make_linear_return(const Program& program, std::span<const Op> run) {
  const Op &linear = run[0], &combine = run[1], &back = run[2];
  const Op* arrange = maker(program, combine.inputs[0]);
  if (arrange == nullptr || arrange->def != &kArrange || combine.inputs[2] != linear.outputs[0] ||
      combine.inputs[3] != kNoValue || back.inputs[2] != combine.outputs[0]) {
    return std::nullopt;
  }
  return Op{&kLinearReturn,
            Attrs::of(LinearReturnAttrs{back.attrs.as<ExchangeAttrs>(),
                                        linear.attrs.as<ExpertLinearAttrs>().bias_elsewhere}),
            {back.inputs[0], back.inputs[1], linear.inputs[0], back.inputs[3], combine.inputs[0],
             combine.inputs[1], linear.inputs[1], linear.inputs[2], linear.inputs[3],
             arrange->outputs[2]},
            {},
            linear.scope,
            linear.tag};
}

void tile_of(const ExchangeAttrs& attrs, int p, const int32_t* token, const int32_t* rows,
             int32_t* begin, int32_t* first) {
  const int64_t H = attrs.held().size(), slot = p * attrs.room;
  begin[0] = 0;
  for (int64_t e = 0; e < H; ++e) {
    // An expert's rows lie by slot, and slots by sender.
    const int32_t* const end = token + rows[e + 1];
    const int32_t* const from = std::lower_bound(token + rows[e], end, slot);
    const int32_t* const to = std::lower_bound(from, end, slot + attrs.room);
    first[e] = static_cast<int32_t>(from - token);
    begin[e + 1] = begin[e] + static_cast<int32_t>(to - from);
  }
}

}  // namespace braid::ops
