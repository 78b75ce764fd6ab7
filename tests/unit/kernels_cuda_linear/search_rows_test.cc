#include "braid/kernels/cuda/linear/search_rows.h"

#include <gtest/gtest.h>

namespace braid::cuda {
namespace {

TEST(SearchRows, PicturesSearchAndFewRowsDoNot) {
  EXPECT_FALSE(repays_search(1023, BatchAxis::none));
  EXPECT_FALSE(repays_search(512, BatchAxis::token));
  for (int64_t rows : {1024, 1999, 4608}) EXPECT_TRUE(repays_search(rows, BatchAxis::none));
}

// Of lengths that prompts have, a few: a prompt over ranks has exactly its length's rows.
TEST(SearchRows, LengthsAreRarelySearchedFor) {
  int64_t searched = 0;
  for (int64_t rows = 1; rows <= 16384; ++rows) {
    searched += repays_search(rows, BatchAxis::shard) ? 1 : 0;
  }
  EXPECT_EQ(searched, 25);
}

// A whole prompt's first step would take more than twice as long for its search.
TEST(SearchRows, WholePromptsDoNotSearch) {
  for (int64_t rows : {9216, 16384, 65536, 131072}) {
    EXPECT_FALSE(repays_search(rows, BatchAxis::token)) << rows;
    EXPECT_FALSE(repays_search(rows, BatchAxis::shard)) << rows;
    EXPECT_TRUE(repays_search(rows, BatchAxis::none)) << rows;
  }
}

}  // namespace
}  // namespace braid::cuda
