#pragma once

#include <cstdint>

#include "braid/engine/requests/non_negative_fit.h"

namespace braid {

// A linear model of a step's milliseconds by the step's size.
struct StepCost {
  double step_ms = 0;   // per step of any size
  double token_ms = 0;  // of each token
  double key_ms = 0;    // for each key a token attends to

  double of(int64_t tokens, int64_t attended) const {
    return step_ms + token_ms * static_cast<double>(tokens) +
           key_ms * static_cast<double>(attended);
  }
};

// Fits a StepCost to steps that ran, the latest counting most. Least squares with forgetting, all
// coefficients at least 0; before the first steps all are 0.
class StepCostFit {
 public:
  void add(int64_t tokens, int64_t attended, double ms);
  const StepCost& cost() const { return cost_; }

 private:
  static constexpr double kKeep = 0.98;  // weight of earlier knowledge, per step

  NonNegativeFit<3> fit_{kKeep};
  StepCost cost_;
};

}  // namespace braid
