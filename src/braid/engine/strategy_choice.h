#pragma once

#include <memory>
#include <string>
#include <vector>

#include "braid/engine/batch_cut.h"
#include "braid/engine/forward_plans.h"
#include "braid/schedule/cost_model.h"
#include "braid/schedule/own_prices.h"

namespace braid {

// The strategy of `auto` for batches of a size: every candidate is planned and simulated once per
// size class (rounded capacities and mean length of the KV cache), on the work of the class' first
// batch. The first candidate, `sequential`, stays unless another is cheaper by more than the
// model's noise.
class StrategyChoice {
 public:
  using Strategies = std::vector<std::shared_ptr<const OpScheduler>>;

  static constexpr double kLeastGain = 0.03;

  // `own` as in simulate().
  StrategyChoice(const ForwardPlanner& planner, CostModel model, Strategies strategies,
                 OwnPrices own = {});

  // Index of the strategy for this batch. Costs a few simulations the first time.
  int choose(const Batch& batch);

  // A line per size class so far: each candidate's time, and the choice.
  const std::vector<std::string>& explanations() const { return explanations_; }

 private:
  struct Known {
    ContextKey key;
    int64_t mean_kv = 0;
    int strategy = 0;
  };

  double simulated_seconds(const OpScheduler& strategy, const Batch& batch) const;

  const ForwardPlanner& planner_;
  const CostModel model_;
  const OwnPrices own_;
  const Strategies strategies_;
  BatchCut whole_;  // a member, so a known choice allocates nothing
  std::vector<Known> known_;
  std::vector<std::string> explanations_;
};

// Returns the registered strategy with the least simulated time for `batch`, as `--schedule auto`
// chooses a strategy.
std::shared_ptr<const OpScheduler> fastest_strategy(const ForwardPlanner& planner,
                                                    const Batch& batch, const CostModel& cost,
                                                    const OwnPrices& own = {});

}  // namespace braid
