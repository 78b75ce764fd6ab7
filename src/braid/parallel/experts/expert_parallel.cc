#include "braid/parallel/experts/expert_parallel.h"

#include <algorithm>
#include <map>
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

namespace {

void pin_experts(LayoutPlan& plan, const Program& program, std::vector<Range> parts) {
  for (const Op& op : program.ops) {
    if (!ops::reads_experts(op)) continue;
    for (ValueId id : op.inputs) {
      if (id == kNoValue || program.value(id).kind != ValueKind::weight) continue;
      plan.pinned.insert_or_assign(program.value(id).name, Placement::shard(0, parts));
    }
  }
  plan.experts = std::move(parts);
}

}  // namespace

LayoutPlan expert_parallel(const Program& program, const std::vector<Range>& parts) {
  const int P = static_cast<int>(parts.size());
  LayoutPlan plan = tensor_parallel(program, P, /*whole_experts=*/true);
  if (P > 1) pin_experts(plan, program, parts);
  return plan;
}

namespace {

// Gives each rank in a set with the same experts a part of their width.
void divide_widths(LayoutPlan& plan, const Program& program, int ep) {
  const int ranks = plan.ranks();
  const auto divide = [&](ValueId id, int dim, int64_t F, int64_t block) {
    if (id == kNoValue || program.value(id).kind != ValueKind::weight) return;
    std::vector<Range> parts;
    for (int set = 0; set < ep; ++set) {
      const int64_t n = even_part(ranks, ep, set).size(), blocks = ceil_div(F, block);
      if (blocks < n) {
        fail(ErrorCode::kInvalidArgument,
             "expert parallelism over {} of {} ranks: {} ranks divide an expert's {} columns, "
             "which have {} blocks",
             ep, ranks, n, F, blocks);
      }
      for (int64_t r = 0; r < n; ++r) {
        const Range part = even_part(blocks, n, r);
        parts.push_back({part.begin * block, std::min(part.end * block, F)});
      }
    }
    plan.widths.insert_or_assign(program.value(id).name, Placement::shard(dim, std::move(parts)));
  };
  std::map<ValueId, const Op*> gated;
  for (const Op& op : program.ops) {
    if (op.def == &ops::kExpertGated) gated[op.outputs[0]] = &op;
    if (op.def != &ops::kExpertLinear) continue;
    const ValueType& down = program.value(op.inputs[2]).type;
    const int64_t F = down.shape[2], block = info(down.dtype).block_elems;
    divide(op.inputs[2], 2, F, block);
    const Op& made = *gated.at(op.inputs[0]);
    for (size_t i = 3; i < made.inputs.size(); ++i) divide(made.inputs[i], 1, F, block);
  }
}

// Each rank multiplies all groups' rows by its part of the head.
void divide_head(LayoutPlan& plan, const Program& program) {
  const auto head = program.find("lm_head");
  if (!head || program.value(*head).type.shape[0] < plan.ranks()) return;
  std::vector<Range> rows;
  for (int r = 0; r < plan.ranks(); ++r) {
    rows.push_back(even_part(program.value(*head).type.shape[0], plan.ranks(), r));
  }
  plan.pinned.insert_or_assign("lm_head", Placement::shard(0, std::move(rows)));
}

}  // namespace

LayoutPlan expert_parallel(const Program& program, const RankDegrees& degrees) {
  const int ranks = degrees.ranks(), ep = degrees.ep;
  const auto refuse = [&](std::string_view why) {
    fail(ErrorCode::kInvalidArgument, "expert parallelism over {} ranks: {}", ep, why);
  };
  if (ep < 1) refuse("wanted at least 1");
  LayoutPlan plan;
  if (ep == 1) {
    plan = tensor_parallel(program, degrees.tp);
  } else {
    const int64_t E = experts_of(program);
    if (E == 0) refuse("this model has no experts");
    if (ep > E) refuse(fmt::format("this model has {} experts", E));
    if (ep > ranks) refuse(fmt::format("there are {} ranks", ranks));
    plan = tensor_parallel(program, degrees.tp, /*whole_experts=*/true);
    std::vector<Range> parts;
    for (int set = 0; set < ep; ++set) {
      parts.insert(parts.end(), static_cast<size_t>(even_part(ranks, ep, set).size()),
                   even_part(E, ep, set));
    }
    pin_experts(plan, program, std::move(parts));
  }
  plan.groups = degrees.groups;
  plan.expert_memory = degrees.expert_memory;
  if (ep > 1 && ep < ranks) divide_widths(plan, program, ep);
  if (plan.groups > 1) divide_head(plan, program);
  return plan;
}

int expert_sets(const LayoutPlan& plan) {
  int sets = 0;
  for (size_t r = 0; r < plan.experts.size(); ++r) {
    // Ranks of a set have the same experts; ranks without experts are sets by themselves.
    const Range& own = plan.experts[r];
    sets += r == 0 || own.empty() || own != plan.experts[r - 1];
  }
  return std::max(1, sets);
}

LayoutPlan with_divided_rows(LayoutPlan plan, const Program& program) {
  plan.token_sharded_residual = plan.P > 1;
  if (plan.experts.empty()) return plan;
  std::vector<const Op*> maker(program.values.size());
  for (const Op& op : program.ops) {
    for (ValueId id : op.outputs) maker[static_cast<size_t>(id)] = &op;
  }
  std::set<ValueId> whole;  // inputs of experts and shared experts
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

int64_t exchange_room(const LayoutPlan& plan, const Program& program, int64_t S) {
  if (plan.expert_memory == 0) return S;
  int64_t slot = 1;  // bytes: a row and its sum, and what each of the row's experts makes
  for (const Op& op : program.ops) {
    if (op.def != &ops::kExpertGated) continue;
    const ValueType& x = program.value(op.inputs[0]).type;
    const int64_t C = x.shape[1], F = program.value(op.outputs[0]).type.shape[1];
    const int64_t k = program.expert_rows(1);
    slot = std::max(slot, bytes_of(x.dtype, 2 * C) + k * bytes_of(x.dtype, F + C));
  }
  return std::clamp<int64_t>(plan.expert_memory / (plan.ranks() * slot), 1, S);
}

std::string expert_placement(const Program& of_rank, int P) {
  const std::string sets =
      of_rank.expert_ranks == P
          ? fmt::format("{} ranks", P)
          : fmt::format("{} sets of ranks, which divide widths", of_rank.expert_ranks);
  for (const Op& op : of_rank.ops) {
    if (op.def == &ops::kDispatch) {
      const auto& a = op.attrs.as<ops::ExchangeAttrs>();
      return fmt::format("{} experts over {}, rows sent to the experts' ranks",
                         a.experts.back().end, sets);
    }
    if (op.def != &ops::kRoute) continue;
    const int64_t E = of_rank.value(op.inputs[0]).type.shape[1];
    if (P == 1) return fmt::format("{} experts on one rank", E);
    if (!op.attrs.as<ops::RouteAttrs>().held) {
      return fmt::format("{} experts, a part of each on every one of {} ranks", E, P);
    }
    return fmt::format("{} experts over {}, all rows on every rank", E, sets);
  }
  return "";
}

}  // namespace braid
