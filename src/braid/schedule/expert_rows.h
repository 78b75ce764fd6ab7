#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace braid {

// Rows of a rank's experts, counted by a launch that sorts rows by expert.
struct ExpertRows {
  int launch = 0;             // index into Schedule::launches
  int64_t first = 0;          // the rank's first expert
  std::vector<int32_t> rows;  // [H] of the rank's experts
};

// The most loaded expert's rows over the mean; 0 without rows.
template <class Rows>
double max_over_mean(const Rows& rows) {
  const auto all = static_cast<double>(std::accumulate(rows.begin(), rows.end(), int64_t{0}));
  if (all == 0) return 0;
  return static_cast<double>(std::ranges::max(rows)) * static_cast<double>(rows.size()) / all;
}
template <class Rows>
int64_t idle_experts(const Rows& rows) {
  return std::ranges::count(rows, 0);
}

}  // namespace braid
