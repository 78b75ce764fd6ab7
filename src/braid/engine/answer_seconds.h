#pragma once

#include <functional>
#include <optional>

#include "braid/engine/forward_plans.h"
#include "braid/kernels/cuda/decode_choice/planned_decode.h"
#include "braid/schedule/own_prices.h"

// Simulated times of steps of answers: a token for each of some sequences.
namespace braid {

// A GPU's constants of decode steps; none: a device without measured constants (profiles/decode),
// or a profile with another memory than that of its name. Its launches take what the profile says.
std::optional<cuda::DecodeRates> answer_rates(const Profile& profile);

// Prices of launches in steps of answers: a profile has the time of a launch in a full stream,
// these have the seam to the next launch. Keeps a reference to `cost`.
OwnPrices launch_seams(const cuda::DecodeRates& rates, const CostModel& cost);
// The same in the forms that GPUs take; a model without a form has seams. Keeps references.
OwnPrices form_prices(const cuda::PlannedDecode& forms, const cuda::DecodeRates& rates,
                      const CostModel& cost);

// Seconds of a step in which each of `sequences` sequences, with `keys` keys, gets a token on ranks
// with all tokens, in the form that GPUs take and by the fastest strategy. `planner_with` makes a
// planner of these ranks with the kernels that it gets, `kernels` or others around `kernels`.
using PlannerWith = std::function<ForwardPlanner(const KernelCatalog& kernels)>;
double answer_seconds(const KernelCatalog& kernels, const PlannerWith& planner_with,
                      int64_t sequences, int64_t keys, const CostModel& cost);

// The same with keys in equal parts on the planner's mesh.
double apart_answer_seconds(const ForwardPlanner& planner, int64_t sequences, int64_t keys,
                            const CostModel& cost);

}  // namespace braid
