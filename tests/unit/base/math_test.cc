#include "braid/base/math.h"

#include <gtest/gtest.h>

#include "braid/base/error.h"

namespace braid {
namespace {

TEST(MathTest, EvenPartsCoverEverythingOnce) {
  for (int64_t n : {0, 1, 7, 9, 64, 1000}) {
    for (int64_t parts : {1, 2, 3, 8, 13}) {
      int64_t at = 0, least = n, most = 0;
      for (int64_t i = 0; i < parts; ++i) {
        const Range part = even_part(n, parts, i);
        EXPECT_EQ(part.begin, at);
        at = part.end;
        least = std::min(least, part.size());
        most = std::max(most, part.size());
      }
      EXPECT_EQ(at, n);
      EXPECT_LE(most - least, 1);
    }
  }
}

TEST(MathTest, OverflowIsSeen) {
  EXPECT_FALSE(checked_mul(int64_t{1} << 40, int64_t{1} << 40));
  EXPECT_FALSE(checked_add(INT64_MAX, 1));
  EXPECT_EQ(checked_mul(3, -5), -15);
}

TEST(ErrorTest, CarriesItsCodeAndMessage) {
  try {
    fail(ErrorCode::kResource, "{} of {}", 3, "pages");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kResource);
    EXPECT_STREQ(e.what(), "3 of pages");
  }
}

TEST(ErrorTest, ABrokenInvariantNamesItsCondition) {
  const int seen = 3;
  try {
    BRAID_CHECK(seen == 4, "seen {}", seen);
    FAIL();
  } catch (const std::logic_error& e) {
    EXPECT_NE(std::string(e.what()).find("seen == 4: seen 3"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace braid
