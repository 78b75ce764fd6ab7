#include "braid/engine/requests/step_cost.h"

namespace braid {

void StepCostFit::add(int64_t tokens, int64_t attended, double ms) {
  fit_.add({1, static_cast<double>(tokens), static_cast<double>(attended)}, ms);
  const auto [step, token, key] = fit_.solve();
  cost_ = {step, token, key};
}

}  // namespace braid
