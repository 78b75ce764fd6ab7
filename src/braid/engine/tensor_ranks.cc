#include "braid/engine/tensor_ranks.h"

namespace braid {

TensorRanks::TensorRanks(MakeForward model, const CacheShape& cache, const Topology& topology,
                         StrategyChoice::Strategies strategies, World& world,
                         const std::optional<CostModel>& cost)
    : world_(world),
      cost_(cost),
      strategies_(std::move(strategies)),
      planner_(std::move(model), cache, world.catalogs(topology.ranks()), topology) {
  if (strategies_.size() > 1) choice_.emplace(planner_, cost_.value(), strategies_);
}

PlannedStep TensorRanks::prepare(const Batch& batch) {
  const BatchInfo info = batch.info(planner_.ranks());
  const int index = choice_ ? choice_->choose(batch) : 0;
  const OpScheduler& strategy = *strategies_[static_cast<size_t>(index)];
  cut_.assign(batch, ask(strategy, [&] { return strategy.split(info); }), strategy.name());
  const ContextKey key = key_for(cut_, index, planner_.ranks());
  const auto bound = plans_.get(key, [&] {
    const LayoutRequest layout = ask(strategy, [&] { return strategy.layout(info); });
    return BoundForward{
        key, world_.bind(planner_.plan(strategy, layout, key, cost_ ? &*cost_ : nullptr))};
  });
  return {bound, &cut_, cut_.works()};
}

std::vector<std::string> TensorRanks::explain() const {
  std::vector<std::string> lines;
  if (choice_) lines = choice_->explanations();
  for (std::string& line : plans_.explain()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace braid
