#pragma once

#include <algorithm>
#include <cmath>
#include <span>

namespace braid::golden {

// Root mean square of the differences over that of what is wanted; infinite for other sizes.
inline double relative_rms(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) return INFINITY;
  double off = 0, all = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    off += std::pow(static_cast<double>(got[i]) - want[i], 2);
    all += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(off / all);
}

// The largest difference, infinite for other sizes and for NaN.
inline double worst_difference(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double d = std::abs(static_cast<double>(got[i]) - want[i]);
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
  }
  return worst;
}

}  // namespace braid::golden
