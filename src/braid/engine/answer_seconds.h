#pragma once

#include <functional>
#include <optional>

#include "braid/engine/forward_plans.h"
#include "braid/kernels/cuda/decode_choice/planned_decode.h"
#include "braid/schedule/own_prices.h"

// Simulated times of steps of answers: a token for each of some sequences.
namespace braid {

// The constants that profiles/decode has for the GPU of a profile's name. None where the folder has
// no such GPU, or where the profile's memory is not that GPU's: launches then take what the profile
// says.
std::optional<cuda::DecodeRates> answer_rates(const Profile& profile);

// Prices of launches in steps of answers: a profile has the time of a launch in a full stream, and
// each launch of a short step has a longer seam to the next launch.
OwnPrices launch_seams(const cuda::DecodeRates& rates);
// Prices of the same launches in the forms that GPUs take; a model without a form has seams. Keeps
// a reference to `forms`.
OwnPrices form_prices(const cuda::PlannedDecode& forms, const cuda::DecodeRates& rates);

// Seconds of a step in which each of `sequences` sequences, with `keys` keys, gets a token on ranks
// with all tokens, in the form that GPUs take and by the fastest strategy. `planner_with`
// returns a planner for the ranks with the catalog it is given: `kernels`, or a PlannedDecode of
// `kernels`.
using PlannerWith = std::function<ForwardPlanner(const KernelCatalog& kernels)>;
double answer_seconds(const KernelCatalog& kernels, const PlannerWith& planner_with,
                      int64_t sequences, int64_t keys, const CostModel& cost);

// The same with keys in equal parts on the planner's mesh.
double apart_answer_seconds(const ForwardPlanner& planner, int64_t sequences, int64_t keys,
                            const CostModel& cost);

}  // namespace braid
