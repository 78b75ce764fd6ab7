#include "braid/engine/batch.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(Batch, PagesThatAStepUsesAndNotThoseThatItsSequencesHoldBesides) {
  constexpr int64_t kPageSize = 4;
  Batch batch(kPageSize);
  EXPECT_EQ(batch.pages_end(), 0);
  const std::vector<int32_t> tokens(3, 7), low = {2, 5, 90}, high = {11, 1};
  batch.add(tokens, 5, low, 1);  // 8 tokens: two pages of the three
  EXPECT_EQ(batch.pages_end(), 6);
  batch.add(tokens, 2, high, 1);  // 5 tokens: both
  EXPECT_EQ(batch.pages_end(), 12);
  batch.clear();
  EXPECT_EQ(batch.pages_end(), 0);
  batch.add(tokens, 6, low, 0);  // 9 tokens: all
  EXPECT_EQ(batch.pages_end(), 91);
}

}  // namespace
}  // namespace braid
