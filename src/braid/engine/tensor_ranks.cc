#include "braid/engine/tensor_ranks.h"

#include <algorithm>
#include <iterator>

#include "braid/engine/sequence_step.h"
#include "braid/ops/input_names.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

// Decodes for all sequences but the last; the last sequence's prompt has the other tokens.
Batch full_batch(const StepSize& size, int64_t context, int64_t page_size) {
  Batch batch(page_size);
  const auto add = [&](int64_t tokens, int64_t cached) {
    const std::vector<int32_t> ids(tokens);
    const std::vector<int32_t> pages(ceil_div(cached + tokens, page_size));
    batch.add(ids, cached, pages, 1);
  };
  const int64_t decodes = size.decode ? size.sequences : size.sequences - 1;
  for (int64_t s = 0; s < decodes; ++s) add(1, std::max<int64_t>(0, context / 2 - 1));
  if (!size.decode) add(size.tokens - decodes, 0);
  return batch;
}

}  // namespace

TensorRanks::TensorRanks(const MakeForward& model, const CacheShape& cache,
                         const Topology& topology, const RankDegrees& degrees,
                         const std::optional<KeyLevels>& levels,
                         StrategyChoice::Strategies strategies, World& world,
                         const std::optional<CostModel>& cost)
    : world_(world),
      cache_(cache),
      cost_(cost),
      strategies_(std::move(strategies)),
      planner_(model, cache, world.catalogs(topology.ranks()), topology, {}, degrees, levels) {
  if (levels) thinned_.emplace(*levels, model);
  if (strategies_.size() > 1) choice_.emplace(planner_, cost_.value(), strategies_);
}

void TensorRanks::ThinnedStep::write(const Executor& executor, int /*rank*/) const {
  cut.write(executor);
  std::ranges::copy(slots, executor.input(inputs::kKvSlots).as<int32_t>());
}

bool TensorRanks::thins(const Batch& batch) const {
  return thinned_ && thinned_->any_layer() && !batch.exact() && batch.sequences().size() == 1 &&
         batch.extents().token >= thinned_->levels().groups.back();
}

PlannedStep TensorRanks::prepare_thinned(const Batch& batch) {
  const auto [tokens, cached, scored] = batch.sequences()[0];
  const int ranks = planner_.ranks(), index = choice_ ? choice_->choose(batch) : 0;
  const OpScheduler& strategy = *strategies_[index];
  cut_.assign(batch, {{0, tokens}}, strategy.name());
  step_.emplace(cut_, slots_of(batch.pages_of(0), cache_.page_size, cached + tokens));
  ContextKey key = key_for_thinned(tokens, cached, batch.extents().row, ranks);
  key.strategy = index;
  const auto bound = plans_.get(key, [&] {
    const LayoutRequest layout = ask(strategy, [&] { return strategy.layout(batch.info(ranks)); });
    PlannedForward planned = planner_.plan(strategy, layout, key, cost());
    plans_.make_way(planned.schedules.front().memory.arena_bytes);
    return world_.bound(key, std::move(planned));
  });
  thinned_->count(key.q, cached);
  return {bound, &*step_, cut_.works(), batch.pages_end()};
}

PlannedStep TensorRanks::prepare(const Batch& batch) {
  if (thinned_) thinned_->begin();
  if (thins(batch)) return prepare_thinned(batch);
  const BatchInfo info = batch.info(planner_.ranks());
  const int index = choice_ ? choice_->choose(batch) : 0;
  const OpScheduler& strategy = *strategies_[index];
  cut_.assign(batch, ask(strategy, [&] { return strategy.split(info); }), strategy.name());
  const ContextKey key = key_for(cut_, index, planner_.ranks());
  const auto bound = plans_.get(key, [&] {
    const LayoutRequest layout = ask(strategy, [&] { return strategy.layout(info); });
    return world_.bound(key, planner_.plan(strategy, layout, key, cost()));
  });
  return {bound, &cut_, cut_.works(), batch.pages_end()};
}

std::shared_ptr<BoundForward> TensorRanks::plan_size(const StepSize& size, int64_t context) {
  const Batch batch = full_batch(size, context, cache_.page_size);
  const BatchInfo info = batch.info(planner_.ranks());
  const int index = choice_ ? choice_->choose(batch) : 0;
  std::shared_ptr<const OpScheduler> strategy = strategies_[index];
  // Where micro-batches meet depends on the batch, and a plan for a size knows none.
  if (ask(*strategy, [&] { return strategy->split(info); }).size() > 1) {
    strategy = find_strategy("sequential");
  }
  ContextKey key{.every_row = size.decode};
  key.micro_batches.push_back(
      {.capacity = {.token = size.tokens,
                    .sequence = size.sequences,
                    .row = size.rows,
                    .shard = ceil_div(size.tokens, static_cast<int64_t>(planner_.ranks()))}});
  const LayoutRequest layout = ask(*strategy, [&] { return strategy->layout(info); });
  return std::make_shared<BoundForward>(
      world_.bound(key, planner_.plan(*strategy, layout, key, cost())));
}

std::optional<Approximation> TensorRanks::approximation() const {
  if (!thinned_) return {};
  return thinned_->made();
}

std::optional<Approximation> TensorRanks::last_approximation() const {
  if (!thinned_) return {};
  return thinned_->last();
}

std::vector<std::string> TensorRanks::explain() const {
  std::vector<std::string> lines;
  if (choice_) lines = choice_->explanations();
  if (thinned_) std::ranges::move(thinned_->explain(), std::back_inserter(lines));
  for (std::string& line : plans_.explain()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace braid
