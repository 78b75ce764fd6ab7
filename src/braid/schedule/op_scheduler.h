#pragma once

#include <memory>
#include <string>

#include "braid/schedule/partition.h"
#include "braid/schedule/schedule_context.h"

namespace braid {

// A strategy's request to the lowering.
struct LayoutRequest {
  bool token_sharded_residual = false;  // reduce_scatter and all_gather instead of all_reduce
  bool operator==(const LayoutRequest&) const = default;
};

// A strategy: order, stream and kernel of each op of each micro-batch (DynaFlow, section 3.2.2).
// Written once, a strategy serves every model. All functions are pure: every rank decides the same,
// and a decision can be cached by its key.
class OpScheduler {
 public:
  virtual ~OpScheduler() = default;

  virtual std::string name() const = 0;
  // Divides the Program into schedule()'s partitions.
  virtual void partition(PartitionRules& rules) const = 0;
  // Micro-batches as adjacent, non-empty ranges that cover all the batch's tokens.
  virtual Ranges split(const BatchInfo& batch) const { return {{0, batch.tokens}}; }
  virtual LayoutRequest layout(const BatchInfo&) const { return {}; }
  // Executes every task of every micro-batch. Called once per context key.
  virtual void schedule(ScheduleContext& ctx) const = 0;
};

// Calls a strategy's function; an exception becomes an Error that names the strategy.
template <class F>
auto ask(const OpScheduler& strategy, F&& question) {
  try {
    return question();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail(ErrorCode::kInvalidArgument, "schedule '{}': the strategy threw: {}", strategy.name(),
         error.what());
  } catch (...) {
    fail(ErrorCode::kInvalidArgument, "schedule '{}': the strategy threw no std::exception",
         strategy.name());
  }
}

// Exported by a shared library with a strategy (docs/scheduling.md):
//   BRAID_STRATEGY(MyScheduler)
// The version guards against a library built for another Braid.
inline constexpr int kStrategyAbi = 2;
#define BRAID_STRATEGY(Scheduler)                          \
  extern "C" int braid_strategy_abi() {                    \
    return ::braid::kStrategyAbi;                          \
  }                                                        \
  extern "C" ::braid::OpScheduler* braid_make_strategy() { \
    return new Scheduler;                                  \
  }

}  // namespace braid
