#include "braid/engine/kv/kv_pages.h"

#include <gtest/gtest.h>

#include "braid/base/error.h"

namespace braid {
namespace {

TEST(KvPages, LowestPagesFirstAndAllComeBack) {
  KvPages pool(10, 16);
  std::vector<int32_t> a, b;
  pool.reserve(a, 33);
  EXPECT_EQ(a, (std::vector<int32_t>{0, 1, 2}));
  pool.reserve(a, 48);
  EXPECT_EQ(a.size(), 3u) << "room for 48 tokens was there";
  pool.reserve(b, 1);
  EXPECT_EQ(b, (std::vector<int32_t>{3}));
  pool.release(a);
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(pool.available(), 9);
  pool.reserve(b, 17);
  EXPECT_EQ(b, (std::vector<int32_t>{3, 0}));
}

TEST(KvPages, AShortageChangesNothing) {
  KvPages pool(2, 16);
  std::vector<int32_t> a;
  EXPECT_THROW(pool.reserve(a, 33), Error);
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(pool.available(), 2);
}

}  // namespace
}  // namespace braid
