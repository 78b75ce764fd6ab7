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

// What rounding to bf16 between ops does to a model: the largest distance over all prompts of the
// scalar references. A GPU rounds at the same places, at other bits, and once more where the file
// has weights in f32: sqrt(2) of it, and a factor of 2 for the largest of several draws.
inline double tolerance_of(const Model& model, const Golden& golden) {
  double most = 0;
  for (const Case& c : golden.cases) {
    const Distance d = distance_of(golden, c, rounded_logits(model, c.prompt));
    most = std::max({most, d.last, d.inner});
  }
  return 2 * std::sqrt(2.) * most;
}

inline void expect_logits(const Golden& golden, const Case& c, const Rows& rows, double tolerance) {
  ASSERT_EQ(rows.size(), c.prompt.size());
  const Distance d = distance_of(golden, c, rows);
  EXPECT_LT(d.last, tolerance);
  EXPECT_LT(d.inner, tolerance);
}

}  // namespace braid::golden
