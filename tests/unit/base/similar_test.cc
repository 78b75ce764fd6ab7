#include "braid/base/similar.h"

#include <gtest/gtest.h>

#include <vector>

namespace braid {
namespace {

TEST(SimilarTest, DistancesCountEditsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("overlpa", "overlap"), 1);
}

TEST(SimilarTest, TheNearestNameIsNearEnough) {
  const std::vector<std::string> names = {"--temperature", "--threads", "--top-k", "--tp"};
  EXPECT_EQ(nearest_name("--tempature", names), "--temperature");
  EXPECT_EQ(nearest_name("--temp", names), "--temperature");
  EXPECT_EQ(nearest_name("--top_k", names), "--top-k");
  EXPECT_EQ(nearest_name("--thread", names), "--threads");
  EXPECT_EQ(nearest_name("--flash-attn", names), std::nullopt);
  EXPECT_EQ(nearest_name("x", {}), std::nullopt);
}

}  // namespace
}  // namespace braid
