#include "braid/schedule/micro_batch.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(SplitTokens, PartsCoverAllTokensEvenlyAndNoneIsTooSmall) {
  for (int64_t tokens = 1; tokens <= 70; ++tokens) {
    for (int n = 1; n <= kMaxMicroBatches; ++n) {
      for (int64_t least : {1, 3, 8, 32}) {
        for (int64_t multiple : {1, 4, 32}) {
          SCOPED_TRACE(fmt::format("{} in {}, at least {}, cut at multiples of {}", tokens, n,
                                   least, multiple));
          const Ranges ranges = split_tokens(tokens, n, least, multiple);
          ASSERT_GE(ranges.size(), 1u);
          ASSERT_LE(static_cast<int>(ranges.size()), n);
          int64_t end = 0, most = 0, fewest = tokens;
          for (const Range& range : ranges) {
            ASSERT_EQ(range.begin, end);
            ASSERT_GT(range.size(), 0);
            if (ranges.size() > 1) {
              ASSERT_GE(range.size(), least);
            }
            if (range.end != tokens) {
              ASSERT_EQ(range.end % multiple, 0);
            }
            end = range.end;
            most = std::max(most, range.size());
            fewest = std::min(fewest, range.size());
          }
          ASSERT_EQ(end, tokens);
          ASSERT_LT(most - fewest, 2 * multiple);
        }
      }
    }
  }
}

TEST(SplitTokens, AsManyPartsAsFit) {
  EXPECT_EQ(split_tokens(1, 2).size(), 1u);
  for (int n : {0, kMaxMicroBatches + 1}) EXPECT_THROW(split_tokens(64, n), Error);
  EXPECT_EQ(split_tokens(2, 2).size(), 2u);
  EXPECT_EQ(split_tokens(7, 3).size(), 3u);
  EXPECT_EQ(split_tokens(63, 2, 32, 32).size(), 1u) << "31 would be left";
  EXPECT_EQ(split_tokens(64, 2, 32, 32).size(), 2u);
  EXPECT_EQ(split_tokens(96, 4, 32, 32).size(), 3u);
}

TEST(AttendedKeys, CountsPairs) {
  for (int64_t cached : {0, 1, 17}) {
    for (int64_t tokens : {1, 2, 9}) {
      int64_t pairs = 0;
      for (int64_t t = 0; t < tokens; ++t) pairs += cached + t + 1;
      EXPECT_EQ(attended_keys(cached, tokens), pairs);
    }
  }
}

}  // namespace
}  // namespace braid
