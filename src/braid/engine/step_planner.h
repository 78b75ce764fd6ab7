#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "braid/engine/approximation.h"
#include "braid/engine/batch.h"
#include "braid/engine/forward_plans.h"
#include "braid/engine/requests/step_sizes.h"

namespace braid {

// Values that the host writes on each rank before a step.
class StepInputs {
 public:
  virtual ~StepInputs() = default;
  // Fills the inputs of the rank's executor.
  virtual void write(const Executor& executor, int rank) const = 0;
  // Row r of the step's logits is row order[r] of the batch's; empty: equal order.
  virtual std::span<const int32_t> row_order() const { return {}; }
  // A rank's rows of the tokens; none: even parts.
  virtual std::optional<int64_t> rows_of(int /*rank*/) const { return {}; }
};

// A step ready to run: each rank writes its inputs, and runs its executor.
struct PlannedStep {
  std::shared_ptr<BoundForward> bound;
  const StepInputs* inputs = nullptr;  // until its planner prepares another step
  std::span<const Work> works;         // [groups, micro-batches], likewise
  int64_t pages = 0;                   // pages of each rank's cache in use, from page 0 on
  int groups = 1;                      // groups of ranks, each with its own batch

  // Of a rank's group.
  std::span<const Work> works_of(int rank) const;
  // Of a rank's micro-batches, with its rows of the tokens.
  InlineVector<Extents, kMaxMicroBatches> counts_of(int rank) const;

  explicit operator bool() const { return bound != nullptr; }
};

// How the ranks of a job share the work of a batch. The caller runs the steps:
//
//   while (PlannedStep first = planner.prepare_first(batch)) run it, then planner.record();
//   PlannedStep step = planner.prepare(batch); run it, then planner.record();
class StepPlanner {
 public:
  virtual ~StepPlanner() = default;

  // A step to run before the batch, such as a step that moves keys to the computing rank. Empty:
  // none is left.
  virtual PlannedStep prepare_first(const Batch& batch) = 0;
  // The step of the batch. `batch` outlives the step. Plans are made once for each size and kept.
  // Fails with kInvalidArgument on a strategy that is wrong.
  virtual PlannedStep prepare(const Batch& batch) = 0;
  // The step that was prepared last has run.
  virtual void record() = 0;
  // Whether a loop on the device can go on with the steps of a batch. If not, the host prepares
  // each step, and no step comes first.
  virtual bool loops_on_device() const { return true; }
  // A loop on the device writes the keys of a sequence into these pages from position `from` on.
  virtual void record_loop(std::span<const int32_t> pages, int64_t from) = 0;

  // The smallest of some sizes whose plan serves the batch; none: prepare() alone does.
  std::optional<size_t> size_for(std::span<const StepSize> sizes, const Batch& batch) const;
  // A plan in a single micro-batch for steps up to a size, owned by the caller. The strategy is
  // chosen for sequences that fill the size and half of a context of `context` tokens.
  virtual std::shared_ptr<BoundForward> plan_size(const StepSize& size, int64_t context) = 0;

  virtual const ForwardPlanner& forward_planner() const = 0;
  // Of all prompts so far; none if nothing was left out.
  virtual std::optional<Approximation> approximation() const { return {}; }
  // Of the batch prepared last, whatever was left out; none: a batch without levels.
  virtual std::optional<Approximation> last_approximation() const { return {}; }
  // A line for each choice so far and each kept plan.
  virtual std::vector<std::string> explain() const = 0;

 private:
  // Whether plan_size() serves the batch, in a size that holds it.
  virtual bool has_size(const Batch& /*batch*/) const { return true; }
};

}  // namespace braid
