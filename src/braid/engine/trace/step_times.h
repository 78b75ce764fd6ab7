#pragma once

#include <cstdint>
#include <span>

#include "braid/engine/requests/step_cost.h"

namespace braid {

// A sequence's part in a step, as far as the step's time depends on it.
struct TimedRow {
  int64_t tokens = 0;   // computed by the step
  int64_t cached = 0;   // keys before them
  int group = 0;        // ranks with the sequence's keys, if groups have separate keys
  bool decode = false;  // a token of an answer
};

// Seconds that a step takes on some ranks.
class StepTimes {
 public:
  virtual ~StepTimes() = default;
  virtual double seconds(std::span<const TimedRow> rows) = 0;
};

// An engine's linear model fitted to its steps, and a time between two steps.
class FittedTimes final : public StepTimes {
 public:
  FittedTimes(const StepCost& cost, double between) : cost_(cost), between_(between) {}
  double seconds(std::span<const TimedRow> rows) override;

 private:
  const StepCost cost_;
  const double between_;  // seconds
};

}  // namespace braid
