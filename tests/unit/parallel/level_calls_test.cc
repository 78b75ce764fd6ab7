// Calls of a rank that has all parts of a prompt (level_calls): the same pairs in fewer segments.
#include "braid/parallel/attention/level_calls.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace braid {
namespace {

using Pair = std::tuple<int64_t, int, int64_t>;  // a row of q, and a key's pair and row

// Which rows see which keys.
std::set<Pair> seen(const std::vector<ops::SegmentAttentionAttrs>& calls) {
  std::set<Pair> pairs;
  for (const ops::SegmentAttentionAttrs& call : calls) {
    for (const ops::QSegment& q : call.q) {
      for (int64_t row = 0; row < q.rows; ++row) {
        for (int i = q.kv_begin; i < q.kv_end; ++i) {
          const ops::KvSegment& kv = call.kv[static_cast<size_t>(i)];
          const Range keys = call.visible(q.position + row, kv);
          for (int64_t key = keys.begin; key < keys.end; ++key) {
            EXPECT_TRUE(pairs.insert({q.row + row, kv.kv, kv.row + key}).second) << "seen twice";
          }
        }
      }
    }
  }
  return pairs;
}

// Parts of 6 rows behind 5 cached keys, which see 4 rows of each earlier part in pair 1.
ops::SegmentAttentionAttrs whole(int parts) {
  ops::SegmentAttentionAttrs attrs{.heads = 2, .kv_heads = 1, .group = 2, .window_right = 0};
  for (int i = 0; i < parts; ++i) {
    const auto begin = static_cast<int>(attrs.kv.size());
    attrs.kv.push_back({.kv = 0, .row = 0, .rows = 5, .position = 0});
    for (int j = 0; j < i; ++j) {
      attrs.kv.push_back({.kv = 1, .row = 4 * j, .rows = 4, .position = 5 + 6 * j});
    }
    attrs.kv.push_back({.kv = 0, .row = 5 + 6 * i, .rows = 6, .position = 5 + 6 * i});
    attrs.q.push_back({.row = 6 * i,
                       .rows = 6,
                       .position = 5 + 6 * i,
                       .state_row = 6 * i,
                       .out_row = 6 * i,
                       .kv_begin = begin,
                       .kv_end = static_cast<int>(attrs.kv.size())});
  }
  return attrs;
}

TEST(LevelCalls, SeeTheSameKeysInFewerSegments) {
  for (int parts : {1, 2, 7, 16, 32}) {
    for (int64_t most : {1, 3, 20}) {
      const ops::SegmentAttentionAttrs one = whole(parts);
      const auto calls = level_calls(one, 1, most);
      EXPECT_EQ(seen(calls), seen({one}));
      int64_t rows = 0;
      for (const ops::SegmentAttentionAttrs& call : calls) {
        // Cached keys and the first part's are one segment; later parts have three.
        EXPECT_LE(std::ssize(call.kv), std::max<int64_t>(most, 3));
        int64_t state = 0;
        for (const ops::QSegment& q : call.q) {
          EXPECT_EQ(q.row, rows);
          EXPECT_EQ(q.out_row, rows);
          EXPECT_EQ(q.state_row, state);
          rows += q.rows, state += q.rows;
        }
        EXPECT_LE(state, state_rows(calls));
      }
      EXPECT_EQ(rows, 6 * parts);
      if (most == 20) {
        EXPECT_EQ(std::ssize(calls), std::max(1, (parts + 4) / 6));
      }
    }
  }
}

// Far keys in rows that do not follow each other, as with several levels, stay apart.
TEST(LevelCalls, JoinOnlyRowsThatFollowEachOther) {
  ops::SegmentAttentionAttrs attrs = whole(3);
  attrs.kv[attrs.q[2].kv_begin + 1].rows = 3;
  const auto calls = level_calls(attrs, 1);
  ASSERT_EQ(std::ssize(calls), 1);
  EXPECT_EQ(seen(calls), seen({attrs}));
  EXPECT_EQ(calls[0].q[2].kv_end - calls[0].q[2].kv_begin, 4);
}

TEST(LevelCalls, CarriedStatesKeepTheirRows) {
  for (bool loads : {true, false}) {
    ops::SegmentAttentionAttrs one = whole(16);
    one.load_state = loads;
    one.finalize = loads;
    int64_t rows = 0;
    for (const ops::SegmentAttentionAttrs& call : level_calls(one, 1, 3)) {
      for (const ops::QSegment& q : call.q) {
        EXPECT_EQ(q.state_row, q.row);
        rows += q.rows;
      }
    }
    EXPECT_EQ(rows, 16 * 6);
  }
}

}  // namespace
}  // namespace braid
