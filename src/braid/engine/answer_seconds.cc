#include "braid/engine/answer_seconds.h"

#include <cmath>

#include "braid/engine/strategy_choice.h"
#include "braid/ops/join_sequence.h"
#include "braid/schedule/simulator.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {

std::optional<cuda::DecodeRates> answer_rates(const Profile& profile) {
  cuda::DecodeRates rates =
      cuda::absent_decode_rates(profile.name, profile.memory_bytes_per_second);
  constexpr double kNear = 0.1;  // of a stream measured in two ways
  const bool of_this_device = std::abs(rates.stream / profile.memory_bytes_per_second - 1) < kNear;
  return rates.unmeasured.empty() && of_this_device ? std::optional(rates) : std::nullopt;
}

OwnPrices launch_seams(const cuda::DecodeRates& rates) {
  return [seam = rates.panel_seam](const Program&, const Op& op, bool) {
    return ops::keeps_place(op) ? std::nullopt
                                : std::optional(OwnPrice{.fixed = seam, .memory = {}});
  };
}

OwnPrices form_prices(const cuda::PlannedDecode& forms, const cuda::DecodeRates& rates) {
  return [&forms, seams = launch_seams(rates)](const Program& program, const Op& op, bool grouped) {
    const std::optional<OwnPrice> price = forms.price(program, op, grouped);
    return price ? price : seams(program, op, grouped);
  };
}

double answer_seconds(const KernelCatalog& kernels, const PlannerWith& planner_with,
                      int64_t sequences, int64_t keys, const CostModel& cost) {
  std::optional<cuda::PlannedDecode> forms;
  OwnPrices own;
  if (const auto rates = answer_rates(cost.profile())) {
    forms.emplace(kernels, cuda::DecodeForm(), *rates, keys, cost.topology().machines > 1);
    own = form_prices(*forms, *rates);
  }
  const ForwardPlanner planner = planner_with(forms ? *forms : kernels);
  const std::vector<int32_t> pages(static_cast<size_t>(ceil_div(keys, kPageSize)));
  const std::vector<int32_t> id(1);
  Batch batch(kPageSize);
  for (int64_t i = 0; i < sequences; ++i) batch.add(id, keys - 1, pages, 1);
  const auto strategy = fastest_strategy(planner, batch, cost, own);
  BatchCut cut;
  const PlannedForward planned = planner.plan(*strategy, batch, cut, &cost);
  return simulate(planned, cut.works(), cost, own).seconds;
}

double apart_answer_seconds(const ForwardPlanner& planner, int64_t sequences, int64_t keys,
                            const CostModel& cost) {
  const ContextKey key =
      key_for_apart(even_layout(sequences, planner.ranks()), sequences, sequences);
  const PlannedForward planned = planner.plan_apart(*find_strategy("sequential"), key, &cost);
  const int64_t share = ceil_div(sequences * keys, int64_t{planner.ranks()});
  const Work work{.extents = {.token = sequences, .sequence = 1, .row = sequences},
                  .attended = share,
                  .kv_tokens = share};
  const auto rates = answer_rates(cost.profile());
  return simulate(planned, {&work, 1}, cost, rates ? launch_seams(*rates) : OwnPrices()).seconds;
}

}  // namespace braid
