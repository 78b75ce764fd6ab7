// Pairs of a query and a visible key by their closed form: what a count row by row gives.
#include <gtest/gtest.h>

#include <random>

#include "braid/ops/segment_attention.h"

namespace braid::ops {
namespace {

TEST(SegmentPairs, AreThoseOfACountByRows) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int64_t n) {
      return std::uniform_int_distribution<int64_t>(0, n - 1)(random);
    };
    SegmentAttentionAttrs a;
    if (below(3) > 0) a.window_right = below(2) * below(9);
    if (below(3) > 0) a.window_left = below(12);
    for (int i = 0; i < 3; ++i) {
      a.kv.push_back({.rows = below(20), .position = below(40), .phase = i});
      a.q.push_back({.rows = below(20),
                     .position = below(40),
                     .kv_end = 1 + i,
                     .phase = static_cast<int>(below(3)),
                     .part = static_cast<int>(below(2))});
    }
    for (const std::optional<int> part : {std::optional<int>(), std::optional(1)}) {
      std::vector<double> want(static_cast<size_t>(a.last_phase()) + 1);
      for (const QSegment& q : a.q) {
        if (part && *part != q.part) continue;
        for (int i = q.kv_begin; i < q.kv_end; ++i) {
          const KvSegment& kv = a.kv[static_cast<size_t>(i)];
          for (int64_t r = 0; r < q.rows; ++r) {
            want[static_cast<size_t>(std::max(q.phase, kv.phase))] +=
                static_cast<double>(a.visible(q.position + r, kv).size());
          }
        }
      }
      EXPECT_EQ(a.pairs(part), want) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace braid::ops
