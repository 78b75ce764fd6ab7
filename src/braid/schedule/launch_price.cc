#include "braid/schedule/launch_price.h"

#include <algorithm>

#include "braid/schedule/partition.h"

namespace braid {

Work work_of(const Launch& launch, std::span<const Work> works) {
  Work sum;
  for (int mb = launch.micro_batch; mb < launch.micro_batch_end(); ++mb) {
    const Work& work = works[mb];
    sum.extents += work.extents;
    sum.attended += work.attended;
    sum.kv_tokens += work.kv_tokens;
  }
  return sum;
}

LaunchCost price(const CostModel& model, const Program& program, const Schedule& schedule,
                 const Launch& launch, std::span<const Work> works, int rank) {
  if (launch.joined.empty()) {
    return model.price(program, schedule.op(program, launch), work_of(launch, works), launch.stream,
                       rank);
  }
  LaunchCost all;
  launch.for_each_op([&](int op, int mb) {
    all += model.price(program, program.ops[op], works[mb], launch.stream, rank);
  });
  return all;
}

std::vector<LaunchCost> price_launches(const CostModel& model, const Program& program,
                                       const Schedule& schedule, std::span<const Work> works,
                                       int rank, const OwnPrices& own) {
  std::vector<LaunchCost> costs;
  for (const Launch& launch : schedule.launches) {
    const Op& op = schedule.op(program, launch);
    const auto i = static_cast<int>(costs.size());
    const LaunchGroup* const group = schedule.group_of(i);
    LaunchCost& cost = costs.emplace_back(price(model, program, schedule, launch, works, rank));
    if (group != nullptr && i > group->first) {
      cost.fixed = std::max(0., cost.fixed - model.profile().launch_seconds);
    }
    if (!own || communicates(op)) continue;
    if (const auto price = own(program, op, group != nullptr)) {
      cost.fixed = price->fixed;
      if (!price->memory) continue;
      cost.memory = *price->memory;
    }
  }
  return costs;
}

}  // namespace braid
