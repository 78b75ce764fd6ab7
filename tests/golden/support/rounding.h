#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "braid/ops/fusion.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"

// How near a GPU, which rounds to bf16 between ops, must come to Hugging Face's logits in f32.
namespace braid::golden {

// By the ops' scalar references: every value between ops is rounded to bf16 as on the GPU, sums are
// in f64.
inline Rows rounded_logits(const Model& model, const std::vector<int32_t>& prompt) {
  const auto n = std::ssize(prompt);
  return reference_logits(model,
                          fuse(model.forward({.capacity = {n, 1, n},
                                              .pages = kPages,
                                              .page_size = kPageSize,
                                              .pages_per_sequence = kPages,
                                              .kv_dtype = DType::bf16,
                                              .activations = DType::bf16}),
                               fusions()),
                          prompt);
}

// How far logits are from Hugging Face's in f32, at the prompt's end and at inner positions.
struct Distance {
  double last = 0;
  double inner = 0;
};

inline Distance distance_of(const Golden& golden, const Case& c, const Rows& rows) {
  Distance d;
  d.last = relative_distance(rows.back(), c.last);
  std::vector<float> inner;
  for (int64_t position : c.inner_positions) {
    for (int64_t column : golden.columns) {
      inner.push_back(rows[static_cast<size_t>(position)][static_cast<size_t>(column)]);
    }
  }
  if (!inner.empty()) d.inner = relative_distance(inner, c.inner);
  return d;
}

// What rounding to bf16 between ops does to a model: the distances of the scalar references,
// sorted, one for each prompt.
inline std::vector<double> rounding_distances(const Model& model, const Golden& golden) {
  std::vector<double> all;
  for (const Case& c : golden.cases) {
    const Distance d = distance_of(golden, c, rounded_logits(model, c.prompt));
    all.push_back(std::max(d.last, d.inner));
  }
  std::ranges::sort(all);
  return all;
}

// A GPU rounds at the same places as the references, at other bits, and once more where the file
// has weights in f32: sqrt(2) of their distance, and a factor of 2 for the largest of several
// draws.
constexpr double kDraws = 2 * 1.4142135623730951;
inline double tolerance_of(const Model& model, const Golden& golden) {
  return kDraws * rounding_distances(model, golden).back();
}

inline void expect_logits(const Golden& golden, const Case& c, const Rows& rows, double tolerance) {
  ASSERT_EQ(rows.size(), c.prompt.size());
  const Distance d = distance_of(golden, c, rows);
  EXPECT_LT(d.last, tolerance);
  EXPECT_LT(d.inner, tolerance);
}

// Logits of several prompts and chunks. Each lies within the tolerance; but where a mixture's last
// chosen expert is hardly better than the next, rounding turns the choice and logits make a step.
// Such steps hit few prompts, and a fault of the engine all of a kind. A mixture's tolerance is
// that of the median prompt, and a fifth may be beyond.
class LogitsCheck {
 public:
  LogitsCheck(const Model& model, const Golden& golden)
      : golden_(golden), mixture_(model.config().experts.has_value()) {
    const std::vector<double> all = rounding_distances(model, golden);
    const double most = all.back();
    tolerance_ = kDraws * (mixture_ ? std::min(most, 2 * all[all.size() / 2]) : most);
  }
  ~LogitsCheck() {
    EXPECT_LE(5 * beyond_, all_) << beyond_ << " of " << all_ << " beyond " << tolerance_
                                 << ", the farthest " << farthest_;
  }
  LogitsCheck(const LogitsCheck&) = delete;

  void expect(const Case& c, const Rows& rows) {
    if (!mixture_) return expect_logits(golden_, c, rows, tolerance_);
    ASSERT_EQ(rows.size(), c.prompt.size());
    const Distance d = distance_of(golden_, c, rows);
    for (const double distance : {d.last, d.inner}) {
      ++all_;
      beyond_ += !(distance < tolerance_);
      farthest_ = std::max(farthest_, distance);
    }
  }

 private:
  const Golden& golden_;
  const bool mixture_;
  double tolerance_ = 0;
  int all_ = 0, beyond_ = 0;
  double farthest_ = 0;
};

}  // namespace braid::golden
