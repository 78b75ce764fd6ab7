#include "braid/ops/axis_ranks.h"

#include "braid/ops/comm.h"
#include "braid/ops/fused_comm.h"

namespace braid::ops {

AxisRanks axis_of(const Op& op) {
  const auto of = [](const auto& attrs) { return AxisRanks{attrs.axis, attrs.ranks}; };
  if (op.def == &kTakeShard) return of(op.attrs.as<TakeShardAttrs>());
  if (op.def == &kLinearAllReduce) return of(op.attrs.as<LinearAllReduceAttrs>());
  if (op.def->collective.computes) return of(op.attrs.as<ReduceNormAttrs>());
  return of(op.attrs.as<CommAttrs>());
}

}  // namespace braid::ops
