#include "braid/parallel/experts/expert_parallel.h"

#include <set>

#include "braid/ops/expert_exchange.h"
#include "braid/ops/experts.h"
#include "braid/parallel/tensor_parallel.h"

namespace braid {

int64_t experts_of(const Program& program) {
  int64_t E = 0;
  for (const Op& op : program.ops) {
    if (op.def != &ops::kRoute) continue;
    const int64_t here = program.value(op.inputs[0]).type.shape[1];
    if (E != 0 && here != E) {
      fail(ErrorCode::kUnsupported, "experts: {} at '{}', {} before", here, op.scope, E);
    }
    E = here;
  }
  return E;
}

LayoutPlan expert_parallel(const Program& program, const std::vector<Range>& parts) {
  const int P = static_cast<int>(parts.size());
  LayoutPlan plan = tensor_parallel(program, P, /*whole_experts=*/true);
  if (P == 1) return plan;
  plan.experts = parts;
  for (const Op& op : program.ops) {
    if (op.def != &ops::kExpertGated && op.def != &ops::kExpertLinear) continue;
    for (ValueId id : op.inputs) {
      if (id == kNoValue || program.value(id).kind != ValueKind::weight) continue;
      plan.pinned.insert_or_assign(program.value(id).name, Placement::shard(0, parts));
    }
  }
  return plan;
}

LayoutPlan expert_parallel(const Program& program, int P, int ep) {
  if (ep == 1) return tensor_parallel(program, P);
  const int64_t E = experts_of(program);
  const auto refuse = [&](std::string_view why) {
    fail(ErrorCode::kInvalidArgument, "expert parallelism over {} ranks: {}", ep, why);
  };
  if (ep < 1) refuse("wanted at least 1");
  if (E == 0) refuse("this model has no experts");
  if (ep > E) refuse(fmt::format("this model has {} experts", E));
  if (ep != P) refuse(fmt::format("there are {} ranks, wanted 1 or all of them", P));
  std::vector<Range> parts;
  for (int r = 0; r < P; ++r) parts.push_back(even_part(E, P, r));
  return expert_parallel(program, parts);
}

LayoutPlan with_divided_rows(LayoutPlan plan, const Program& program) {
  plan.token_sharded_residual = true;
  if (plan.experts.empty()) return plan;
  std::vector<const Op*> maker(program.values.size());
  for (const Op& op : program.ops) {
    for (ValueId id : op.outputs) maker[static_cast<size_t>(id)] = &op;
  }
  std::set<ValueId> whole;  // what experts and shared experts compute from
  for (const Op& op : program.ops) {
    if (op.def == &ops::kExpertGated) whole.insert(op.inputs[0]);
  }
  for (const Op& op : program.ops) {
    if (op.def != &ops::kCombine || op.inputs[3] == kNoValue) continue;
    std::vector<ValueId> open = {op.inputs[3]};
    while (!open.empty()) {
      const ValueId id = open.back();
      open.pop_back();
      if (id == kNoValue || !whole.insert(id).second) continue;
      plan.pinned.erase(program.value(id).name);
      const Op* made_by = maker[static_cast<size_t>(id)];
      if (made_by != nullptr)
        open.insert(open.end(), made_by->inputs.begin(), made_by->inputs.end());
    }
  }
  return plan;
}

std::string expert_placement(const Program& of_rank, int P) {
  for (const Op& op : of_rank.ops) {
    if (op.def == &ops::kDispatch) {
      const auto& a = op.attrs.as<ops::ExchangeAttrs>();
      return fmt::format("{} experts over {} ranks, rows sent to the experts' ranks",
                         a.experts.back().end, P);
    }
    if (op.def != &ops::kRoute) continue;
    const int64_t E = of_rank.value(op.inputs[0]).type.shape[1];
    if (P == 1) return fmt::format("{} experts on one rank", E);
    if (!op.attrs.as<ops::RouteAttrs>().held) {
      return fmt::format("{} experts, a part of each on every one of {} ranks", E, P);
    }
    return fmt::format("{} experts over {} ranks, all rows on every rank", E, P);
  }
  return "";
}

}  // namespace braid
