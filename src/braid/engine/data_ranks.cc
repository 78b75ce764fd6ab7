#include "braid/engine/data_ranks.h"

namespace braid {

DataRanks::DataRanks(MakeForward model, const CacheShape& cache, const Topology& topology,
                     const RankDegrees& degrees, StrategyChoice::Strategies strategies,
                     World& world, const std::optional<CostModel>& cost)
    : world_(world),
      cost_(cost),
      strategies_(std::move(strategies)),
      planner_(std::move(model), cache, world.catalogs(topology.ranks()), topology, {}, degrees),
      deal_(degrees.groups, degrees.tp, cache.pages, cache.page_size) {
  if (strategies_.size() > 1) choice_.emplace(planner_, cost_.value(), strategies_);
}

PlannedStep DataRanks::prepare(const Batch& batch) {
  deal_.assign(batch);
  const Batch& busiest = deal_.busiest();
  const BatchInfo info = busiest.info(planner_.ranks());
  const int index = choice_ ? choice_->choose(busiest) : 0;
  const OpScheduler& strategy = *strategies_[index];
  deal_.cut(ask(strategy, [&] { return strategy.split(info); }), strategy.name());
  const ContextKey key = deal_.key(index);
  const auto bound = plans_.get(key, [&] {
    const LayoutRequest layout = ask(strategy, [&] { return strategy.layout(info); });
    return world_.bound(key, planner_.plan(strategy, layout, key, cost_ ? &*cost_ : nullptr));
  });
  return {bound, &deal_, deal_.works(), batch.pages_end(), deal_.groups()};
}

std::vector<std::string> DataRanks::explain() const {
  std::vector<std::string> lines;
  if (choice_) lines = choice_->explanations();
  for (std::string& line : plans_.explain()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace braid
