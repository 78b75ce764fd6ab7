#pragma once

#include <gtest/gtest.h>

#include "golden/support/forward.h"
#include "golden/support/golden.h"

namespace braid::golden {

constexpr double kF32Tolerance = 1e-4;  // as logits_test.cc has it

// All rows of a prompt's logits beside a case: the last, and `columns` of the inner positions.
inline void expect_golden(const std::vector<int64_t>& columns, const Case& c, const Rows& rows) {
  ASSERT_EQ(rows.size(), c.prompt.size());
  EXPECT_LT(relative_distance(rows.back(), c.last), kF32Tolerance);
  std::vector<float> inner;
  for (const int64_t position : c.inner_positions) {
    for (const int64_t column : columns) inner.push_back(rows[position][column]);
  }
  EXPECT_LT(relative_distance(inner, c.inner), kF32Tolerance);
}

}  // namespace braid::golden
