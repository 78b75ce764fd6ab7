#include "braid/engine/strategy_choice.h"

#include <algorithm>
#include <bit>

#include "braid/schedule/simulator.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {

StrategyChoice::StrategyChoice(const ForwardPlanner& planner, CostModel model,
                               Strategies strategies, OwnPrices own)
    : planner_(planner),
      model_(std::move(model)),
      own_(std::move(own)),
      strategies_(std::move(strategies)) {
  BRAID_CHECK(!strategies_.empty());
}

int StrategyChoice::choose(const Batch& batch) {
  whole_.assign(batch, {{0, batch.extents().token}}, strategies_[0]->name());
  const ContextKey key = key_for(whole_, 0, planner_.ranks_of_group());
  const int64_t mean_kv = static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(batch.work().kv_tokens / batch.extents().sequence)));
  const auto it = std::ranges::find_if(
      known_, [&](const Known& k) { return k.key == key && k.mean_kv == mean_kv; });
  if (it != known_.end()) return it->strategy;

  std::vector<double> seconds;
  for (const auto& strategy : strategies_) seconds.push_back(simulated_seconds(*strategy, batch));
  const auto best = std::ranges::min_element(seconds);
  const bool pays = *best < seconds[0] * (1 - kLeastGain);
  const int strategy = pays ? static_cast<int>(best - seconds.begin()) : 0;
  std::string line = fmt::format("{} (at most {} keys each): {}", to_string(key), mean_kv,
                                 strategies_[strategy]->name());
  for (size_t i = 0; i < seconds.size(); ++i) {
    line += fmt::format("{} {} {:.3f} ms", i == 0 ? ";" : ",", strategies_[i]->name(),
                        1e3 * seconds[i]);
  }
  explanations_.push_back(std::move(line));
  known_.push_back({key, mean_kv, strategy});
  return strategy;
}

double StrategyChoice::simulated_seconds(const OpScheduler& strategy, const Batch& batch) const {
  BatchCut cut;
  const PlannedForward planned = planner_.plan(strategy, batch, cut, &model_);
  return simulate(planned, cut.works(), model_, own_).seconds;
}

std::shared_ptr<const OpScheduler> fastest_strategy(const ForwardPlanner& planner,
                                                    const Batch& batch, const CostModel& cost,
                                                    const OwnPrices& own) {
  StrategyChoice::Strategies all;
  for (const std::string& name : strategy_names()) all.push_back(find_strategy(name));
  StrategyChoice choice(planner, cost, all, own);
  return all[static_cast<size_t>(choice.choose(batch))];
}

}  // namespace braid
