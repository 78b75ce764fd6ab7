#pragma once

#include "braid/engine/kv_owners.h"
#include "braid/engine/step_planner.h"

namespace braid {

// A sequence's first step with all tokens on every rank, by plan_weights. Each rank has an even
// part of the keys afterwards; in caches with room for all, rank 0 has a copy of each.
class WholeStep : public StepInputs {
 public:
  // Places the keys in `owners`. `batch` has one sequence without earlier tokens, and must outlive
  // this object. If owners.apart(), each rank has room for its part of the tokens.
  WholeStep(const Batch& batch, KvOwners& owners);

  const SequenceLayout& kv() const { return kv_; }

  // The inputs of a rank's executor.
  void write(const Executor& executor, int rank) const override;

 private:
  const Batch& batch_;
  SequenceLayout kv_;
  std::vector<std::vector<int32_t>> slots_;  // [ranks][tokens], -1: no key there
};

}  // namespace braid
