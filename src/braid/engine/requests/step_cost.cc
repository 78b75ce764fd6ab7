#include "braid/engine/requests/step_cost.h"

#include <cmath>
#include <span>
#include <utility>

namespace braid {
namespace {

// Solves the normal equations for the unknowns in `use`; false for an underdetermined system.
bool solve(const double (&a)[3][3], const double (&b)[3], std::span<const int> use,
           double (&x)[3]) {
  double m[3][4] = {};
  const auto n = use.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) m[i][j] = a[use[i]][use[j]];
    m[i][i] *= 1 + 1e-9;  // equal steps determine a sum, not its parts
    m[i][n] = b[use[i]];
  }
  for (size_t i = 0; i < n; ++i) {
    size_t best = i;
    for (size_t r = i + 1; r < n; ++r) {
      if (std::abs(m[r][i]) > std::abs(m[best][i])) best = r;
    }
    std::swap(m[i], m[best]);
    if (m[i][i] == 0) return false;
    for (size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double factor = m[r][i] / m[i][i];
      for (size_t c = i; c <= n; ++c) m[r][c] -= factor * m[i][c];
    }
  }
  for (double& value : x) value = 0;
  for (size_t i = 0; i < n; ++i) x[use[i]] = m[i][n] / m[i][i];
  return true;
}

}  // namespace

void StepCostFit::add(int64_t tokens, int64_t attended, double ms) {
  const double x[3] = {1, static_cast<double>(tokens), static_cast<double>(attended)};
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) products_[i][j] = kKeep * products_[i][j] + x[i] * x[j];
    answers_[i] = kKeep * answers_[i] + x[i] * ms;
  }
  // Negative unknowns are left out: first all three, then two, then tokens alone.
  static constexpr int kAll[] = {0, 1, 2}, kNoKeys[] = {0, 1}, kNoStep[] = {1, 2}, kTokens[] = {1};
  for (const std::span<const int> use :
       {std::span<const int>(kAll), std::span<const int>(kNoKeys), std::span<const int>(kNoStep),
        std::span<const int>(kTokens)}) {
    double fit[3];
    if (!solve(products_, answers_, use, fit)) continue;
    if (fit[0] < 0 || fit[1] < 0 || fit[2] < 0) continue;
    cost_ = {fit[0], fit[1], fit[2]};
    return;
  }
}

}  // namespace braid
