#pragma once

#include <span>

#include "braid/schedule/cost_model.h"
#include "braid/schedule/own_prices.h"
#include "braid/schedule/schedule.h"

namespace braid {

// A launch's work, summed over its micro-batches.
Work work_of(const Launch& launch, std::span<const Work> works);

// The launch's cost alone on a rank, with `works` [micro-batches] of the step. Joined ops run
// beside each other.
LaunchCost price(const CostModel& model, const Program& program, const Schedule& schedule,
                 const Launch& launch, std::span<const Work> works, int rank);

// The costs of all launches on a rank, each alone. Prices of `own` replace the model's. By the
// model, launch_seconds count once in a group.
std::vector<LaunchCost> price_launches(const CostModel& model, const Program& program,
                                       const Schedule& schedule, std::span<const Work> works,
                                       int rank, const OwnPrices& own);

}  // namespace braid
