// Pages that sequences share: who holds which, and what stays cached.
#include "braid/engine/kv/kv_store.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>

namespace braid {
namespace {

constexpr int64_t kPage = 4;

std::vector<int32_t> ids(int32_t first, size_t n) {
  std::vector<int32_t> all(n);
  std::iota(all.begin(), all.end(), first);
  return all;
}

// As a sequence does that computes all of its tokens in one step.
KvHolding compute(KvStore& store, std::string_view salt, const std::vector<int32_t>& tokens) {
  KvHolding holding = store.open(salt);
  store.find(holding, tokens);
  EXPECT_TRUE(store.grow(holding, std::ssize(tokens)));
  store.keep(holding, tokens, std::ssize(tokens));
  return holding;
}

TEST(KvStore, FullPagesStayCachedAndAreFoundAgain) {
  KvStore store(8, kPage, true);
  KvHolding first = compute(store, "", ids(0, 10));
  const std::vector<int32_t> pages = first.pages;
  ASSERT_EQ(pages.size(), 3u);
  store.close(first);
  EXPECT_EQ(store.counts().cached, 2);
  EXPECT_EQ(store.counts().free, 6);

  KvHolding again = store.open("");
  EXPECT_EQ(store.find(again, ids(0, 10)), 8);
  EXPECT_EQ(again.pages, std::vector(pages.begin(), pages.begin() + 2));
  store.close(again);
}

TEST(KvStore, TheLastTokenIsAlwaysComputed) {
  KvStore store(8, kPage, true);
  KvHolding first = compute(store, "", ids(0, 8));
  KvHolding again = store.open("");
  EXPECT_EQ(store.find(again, ids(0, 8)), 4);
  KvHolding longer = store.open("");
  EXPECT_EQ(store.find(longer, ids(0, 9)), 8);
  for (KvHolding* holding : {&first, &again, &longer}) store.close(*holding);
}

TEST(KvStore, OtherTokensAndOtherSaltsShareNothing) {
  KvStore store(16, kPage, true);
  KvHolding first = compute(store, "a", ids(0, 9));
  KvHolding salted = store.open("b");
  EXPECT_EQ(store.find(salted, ids(0, 9)), 0);
  KvHolding other = store.open("a");
  std::vector<int32_t> differs = ids(0, 9);
  differs[5] = 99;
  EXPECT_EQ(store.find(other, differs), 4);
  for (KvHolding* holding : {&first, &salted, &other}) store.close(*holding);
}

// Two pages of the hash by which the tree looks pages up: FNV-1a over words. A second word puts
// right what first words with equal upper halves leave different.
TEST(KvStore, PagesOfOneHashStayApart) {
  const auto hash = [](uint64_t h, int32_t id) {
    return (h ^ static_cast<uint32_t>(id)) * 0x100000001b3u;
  };
  std::vector<int32_t> one(kPage), other(kPage);  // one[1] is 0
  std::map<uint32_t, int32_t> firsts;             // by upper half of the hash
  std::mt19937 random(1);
  for (bool found = false; !found;) {
    const auto id = static_cast<int32_t>(random());
    const uint64_t h = hash(0xcbf29ce484222325u, id);
    const auto [twin, fresh] = firsts.emplace(static_cast<uint32_t>(h >> 32), id);
    if (fresh || twin->second == id) continue;
    found = true;
    one[0] = twin->second;
    other[0] = id;
    other[1] = static_cast<int32_t>(hash(0xcbf29ce484222325u, one[0]) ^ h);
  }
  uint64_t a = 0xcbf29ce484222325u, b = a;
  for (const int32_t id : one) a = hash(a, id);
  for (const int32_t id : other) b = hash(b, id);
  ASSERT_EQ(a, b);
  ASSERT_NE(one, other);
  KvStore store(8, kPage, true);
  for (std::vector<int32_t>* tokens : {&one, &other}) tokens->push_back(7);
  KvHolding first = compute(store, "", one);
  KvHolding second = store.open("");
  EXPECT_EQ(store.find(second, other), 0);
  store.close(second);
  second = compute(store, "", other);
  EXPECT_NE(second.pages[0], first.pages[0]);
  store.close(first);
  for (const std::vector<int32_t>& tokens : {one, other}) {
    KvHolding again = store.open("");
    EXPECT_EQ(store.find(again, tokens), kPage);
    store.close(again);
  }
  store.close(second);
}

TEST(KvStore, EqualPagesComputedTwiceBecomeOne) {
  KvStore store(8, kPage, true);
  KvHolding a = store.open(""), b = store.open("");
  const std::vector<int32_t> tokens = ids(0, 6);
  ASSERT_TRUE(store.grow(a, 6) && store.grow(b, 6));
  store.keep(a, tokens, 6);
  store.keep(b, tokens, 6);
  EXPECT_EQ(a.pages[0], b.pages[0]);
  EXPECT_NE(a.pages[1], b.pages[1]);
  EXPECT_EQ(store.counts().held, 3);
  const std::vector<const KvHolding*> all = {&a, &b};
  store.check(all);
  store.close(a);
  store.close(b);
  EXPECT_EQ(store.counts().held, 0);
}

TEST(KvStore, GivesUpTheLeastRecentlyUsedLeafFirst) {
  KvStore store(4, kPage, true);
  KvHolding a = compute(store, "", ids(0, 8));  // two pages in a row
  store.close(a);
  KvHolding b = compute(store, "", ids(100, 4));  // one page, used later
  store.close(b);
  ASSERT_EQ(store.counts().cached, 3);
  KvHolding c = store.open("");
  ASSERT_TRUE(store.grow(c, 8));  // a's second page goes: it is a leaf
  KvHolding probe = store.open("");
  EXPECT_EQ(store.find(probe, ids(0, 9)), 4);
  store.close(probe);
  EXPECT_EQ(store.evictions(), 1);
  EXPECT_FALSE(store.grow(c, 17));
  EXPECT_EQ(c.pages.size(), 2u);
  EXPECT_TRUE(store.grow(c, 16));
  EXPECT_EQ(store.counts().cached, 0);
  store.close(c);
  EXPECT_EQ(store.counts().free, 4);
}

TEST(KvStore, WithoutSharingNothingIsCached) {
  KvStore store(8, kPage, false);
  KvHolding first = compute(store, "", ids(0, 10));
  store.close(first);
  EXPECT_EQ(store.counts().free, 8);
  EXPECT_EQ(store.counts().cached, 0);
}

TEST(KvStore, ACountThatIsOffIsSeen) {
  KvStore store(8, kPage, true);
  KvHolding holding = compute(store, "", ids(0, 10));
  EXPECT_THROW(store.check({}), std::logic_error);
  const std::vector<const KvHolding*> all = {&holding};
  store.check(all);
  store.close(holding);
}

}  // namespace
}  // namespace braid
