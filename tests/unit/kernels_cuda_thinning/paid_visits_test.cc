// Which tiles of keys scoring queries visit, by the segments alone: each visible pair once.
#include "braid/kernels/cuda/thinning/paid_visits.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "braid/base/error.h"

namespace braid::cuda {
namespace {

ops::PaidKeysAttrs attrs_of() {
  ops::PaidKeysAttrs attrs;
  ops::SegmentAttentionAttrs& a = attrs.segments;
  a.heads = 6, a.kv_heads = 2, a.group = 3;
  a.window_right = 0;
  a.kv = {{.kv = 1, .row = 60, .rows = 70, .position = 0},
          {.kv = 0, .row = 5, .rows = 130, .position = 200},
          {.kv = 1, .row = 0, .rows = 1, .position = 999},
          {.kv = 0, .row = 140, .rows = 20, .position = 310}};
  a.q = {{.row = 7, .rows = 9, .position = 321, .kv_begin = 0, .kv_end = 2},
         {.row = 20, .rows = 0, .position = 5, .kv_begin = 0, .kv_end = 2},
         {.row = 30, .rows = 4, .position = 312, .kv_begin = 1, .kv_end = 4}};
  return attrs;
}

TEST(PaidVisits, EachVisiblePairIsInOneVisit) {
  const ops::PaidKeysAttrs attrs = attrs_of();
  const ops::SegmentAttentionAttrs& a = attrs.segments;
  const int64_t rows[] = {170, 130};
  const PaidVisits visits = paid_visits(attrs, rows);
  using Pair = std::tuple<int64_t, int, int64_t>;  // query row, pair, key row
  std::multiset<Pair> want, got;
  for (const ops::QSegment& q : a.q) {
    for (int64_t t = 0; t < q.rows; ++t) {
      for (int i = q.kv_begin; i < q.kv_end; ++i) {
        const Range seen = a.visible(q.position + t, a.kv[i]);
        for (int64_t j = seen.begin; j < seen.end; ++j) {
          want.insert({q.row + t, a.kv[i].kv, a.kv[i].row + j});
        }
      }
    }
  }
  std::map<int, std::set<int>> slots;  // of a run
  for (int pair = 0; pair < kMostPaidPairs; ++pair) {
    for (int i = visits.of_pair[pair]; i < visits.of_pair[pair + 1]; ++i) {
      const ScoringVisit& v = visits.visits[i];
      const ScoringRun& run = visits.runs[v.run];
      for (int tile = v.begin / kTileKeys; tile <= (v.end - 1) / kTileKeys; ++tile) {
        const int slot = v.tile + tile - v.begin / kTileKeys;
        EXPECT_LT(slot, run.tiles);
        EXPECT_TRUE(slots[v.run].insert(slot).second) << "slot " << slot << " of run " << v.run;
      }
      for (int t = 0; t < run.queries; ++t) {
        for (int j = v.begin; j < std::min(v.end, v.sees + t); ++j) {
          got.insert({run.q_row + t, pair, j});
        }
      }
    }
  }
  EXPECT_TRUE(got == want);
  ASSERT_EQ(visits.runs.size(), 2u) << "an empty segment scores nothing";
  for (const auto& [run, taken] : slots) EXPECT_EQ(std::ssize(taken), visits.runs[run].tiles);
  EXPECT_EQ(visits.logs, 6 * (9 + 4));
  EXPECT_EQ(visits.sums, 6 * (9 * visits.runs[0].tiles + 4 * visits.runs[1].tiles));
  EXPECT_EQ(visits.most_rows, 27);
}

TEST(PaidVisits, OtherAttentionIsRefused) {
  const auto refused = [](const auto& change, size_t pairs = 2) {
    ops::PaidKeysAttrs attrs = attrs_of();
    change(attrs.segments);
    try {
      paid_visits(attrs, std::vector<int64_t>(pairs, 170));
    } catch (const Error& error) {
      return error.code() == ErrorCode::kUnsupported;
    }
    return false;
  };
  EXPECT_TRUE(refused([](auto& a) { a.window_left = 5; }));
  EXPECT_TRUE(refused([](auto& a) { a.window_right = ops::kUnlimited; }));
  EXPECT_TRUE(refused([](auto& a) { a.head_offset = 1; }));
  EXPECT_TRUE(refused([](auto& a) { a.heads = 5; }));
  EXPECT_TRUE(refused([](auto&) {}, 4));
  EXPECT_FALSE(refused([](auto&) {}));
}

}  // namespace
}  // namespace braid::cuda
