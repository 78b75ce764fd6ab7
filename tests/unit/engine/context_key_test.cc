#include "braid/engine/context_key.h"

#include <gtest/gtest.h>

#include <set>

#include "braid/engine/batch_cut.h"
#include "braid/kernels/cuda/linear/search_rows.h"

namespace braid {
namespace {

Batch batch_of(const std::vector<int64_t>& prompts, int64_t scored) {
  Batch batch(16);
  batch.clear();
  for (int64_t n : prompts) {
    const std::vector<int32_t> tokens(static_cast<size_t>(n)),
        pages(static_cast<size_t>(n) / 16 + 1);
    batch.add(tokens, 0, pages, std::min(scored, n));
  }
  return batch;
}

ContextKey key(const std::vector<int64_t>& prompts, const Ranges& ranges, int ranks = 1,
               int64_t scored = 1) {
  const Batch batch = batch_of(prompts, scored);
  BatchCut cut;
  cut.assign(batch, ranges, "test");
  return key_for(cut, 0, ranks);
}

TEST(ContextKey, CapacitiesHoldTheSizesAndAreFew) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    std::set<int64_t> tokens;
    std::set<std::pair<int64_t, int64_t>> both;
    for (int64_t n = 1; n <= 600; ++n) {
      const ContextKey k = key({n}, {{0, n}}, ranks, n);
      const Extents& c = k.micro_batches[0].capacity;
      ASSERT_GE(c.token, n);
      ASSERT_LT(c.token, 2 * n + ranks);
      if (n > 256) {
        ASSERT_LT(c.token, n + n / 8 + ranks);
      }
      if (n == 1) {
        ASSERT_EQ(c.token, 1);
        ASSERT_EQ(c.shard, 1);
      } else {
        ASSERT_EQ(c.token % ranks, 0);
        ASSERT_EQ(c.shard * ranks, c.token);
      }
      ASSERT_GE(c.row, n);
      ASSERT_GE(c.sequence, 1);
      tokens.insert(c.token);
      both.insert({c.token, c.row});
    }
    EXPECT_LE(tokens.size(), 20u);  // one alone, 9 to 256, then 8 for each power of two
    EXPECT_LE(both.size(), tokens.size() + 1);
  }
  std::set<int64_t> tokens;
  std::set<std::pair<int64_t, int64_t>> both;
  for (size_t n = 1; n <= 200; ++n) {
    const std::vector<int64_t> ones(n, 1);
    const auto end = static_cast<int64_t>(n);
    const Extents c = key(ones, {{0, end}}).micro_batches[0].capacity;
    ASSERT_GE(c.sequence, end);
    ASSERT_LE(c.sequence, c.token);
    ASSERT_GE(c.row, end);
    ASSERT_LE(c.row, c.token);
    tokens.insert(c.token);
    both.insert({c.token, c.sequence});
  }
  EXPECT_LE(both.size(), tokens.size() + 1) << "decoding makes few plans beside those of its sizes";
}

// Products of a batch's steps are searched for: their rows return.
TEST(ContextKey, CapacitiesRepayASearch) {
  for (int64_t n = 1000; n <= 8192; n += 31) {
    for (int ranks : {1, 2, 4, 8}) {
      const Extents c = key({n}, {{0, n}}, ranks).micro_batches[0].capacity;
      EXPECT_EQ(cuda::repays_search(c.token, BatchAxis::token), c.token >= 1024) << n;
      EXPECT_EQ(cuda::repays_search(c.shard, BatchAxis::shard), c.shard >= 1024) << n;
    }
  }
}

TEST(ContextKey, KnowsWhenEveryTokenIsARow) {
  for (int64_t n = 1; n <= 300; ++n) {
    for (int ranks = 1; ranks <= 3; ++ranks) {
      const ContextKey all = key({n}, {{0, n}}, ranks, n);
      ASSERT_TRUE(all.every_row);
      ASSERT_EQ(all.micro_batches[0].capacity.row, all.micro_batches[0].capacity.token);
    }
    const ContextKey some = key({n}, {{0, n}}, 1, n - 1);
    ASSERT_FALSE(some.every_row);
    ASSERT_FALSE(some == key({n}, {{0, n}}, 1, n));
  }
  EXPECT_TRUE(key({1, 1, 1}, {{0, 3}}).every_row);
  EXPECT_TRUE(key({1, 1, 1}, {{0, 1}, {1, 3}}).every_row);
  EXPECT_FALSE(key({1, 4}, {{0, 1}, {1, 5}}).every_row);
}

TEST(ContextKey, LongPromptsAreHardlyPadded) {
  EXPECT_EQ(key({512}, {{0, 512}}).micro_batches[0].capacity.token, 512);
  EXPECT_EQ(key({513}, {{0, 513}}).micro_batches[0].capacity.token, 576);
  EXPECT_EQ(key({1024}, {{0, 1024}}).micro_batches[0].capacity.token, 1024);
}

TEST(ContextKey, APromptAloneHasNoSlotsOfOthers) {
  EXPECT_EQ(key({1000}, {{0, 1000}}).micro_batches[0].capacity.sequence, 1);
  EXPECT_EQ(key({800, 100}, {{0, 900}}).micro_batches[0].capacity.sequence, 8);
  EXPECT_EQ(key(std::vector<int64_t>(9, 100), {{0, 900}}).micro_batches[0].capacity.sequence, 32);
}

TEST(ContextKey, TellsApartWhatNeedsAnotherPlan) {
  const ContextKey base = key({10, 10}, {{0, 10}, {10, 20}});
  EXPECT_EQ(base, key({9, 11}, {{0, 9}, {9, 20}})) << "sizes that round to the same";
  EXPECT_FALSE(base == key({10, 10}, {{0, 20}}));
  EXPECT_FALSE(base == key({10, 20}, {{0, 10}, {10, 30}}));
  EXPECT_FALSE(base == key({20}, {{0, 10}, {10, 20}})) << "the second continues the first";
  EXPECT_FALSE(base == key({10, 10}, {{0, 10}, {10, 20}}, 3));
  ContextKey other = base;
  other.strategy = 1;
  EXPECT_FALSE(base == other);
  EXPECT_EQ(to_string(base), "16+16 tokens, 1+1 sequences, 1+1 rows");
}

// Products of the head, and what ranks exchange for it, have rows for no more than the tokens.
TEST(ContextKey, DividedTokensHaveNoMoreRows) {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    for (int64_t own = 1; own <= 40; ++own) {
      const int64_t rows = 1 + ranks * own;
      const Extents c = key_for_local(ranks, 1, own, 1, rows).micro_batches[0].capacity;
      ASSERT_GE(c.row, rows);
      ASSERT_LE(c.row, c.token);
    }
  }
  const SequenceLayout tokens = even_layout(7, 3);
  EXPECT_EQ(key_for_apart(tokens, 2, 6).micro_batches[0].capacity.row, 7);
  EXPECT_EQ(key_for_apart(tokens, 2, 3).micro_batches[0].capacity.row, 4);
  EXPECT_EQ(key_for_tokens(tokens, tokens, 1).micro_batches[0].capacity.row, 1);
}

TEST(ContextKey, NoScoredRowsStillMakeAPlan) {
  EXPECT_EQ(key({5}, {{0, 5}}, 1, 0).micro_batches[0].capacity.row, 1);
}

}  // namespace
}  // namespace braid
