// Which rank computes and keeps what of a sequence, over steps of any size.
#include "braid/engine/sequence_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace braid {
namespace {

constexpr int64_t kPageSize = 4;

// Each of [0, n) once over all ranks.
void expect_holds_once(const SequenceLayout& layout, int64_t begin, int64_t end) {
  std::vector<int> seen(static_cast<size_t>(end), 0);
  for (const auto& runs : layout.ranks) {
    for (const SequenceRun& run : runs) {
      for (int64_t i = 0; i < run.rows; ++i) ++seen.at(static_cast<size_t>(run.position + i));
    }
  }
  for (int64_t i = 0; i < end; ++i) {
    EXPECT_EQ(seen[static_cast<size_t>(i)], i >= begin ? 1 : 0) << "position " << i;
  }
}

// Pages out of order, some of which another sequence had.
TEST(SequenceStep, KeysStayWhereTheyWereComputed) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    const int P = 1 + static_cast<int>(seed % 5);
    KvOwners owners(P, 64 * kPageSize);
    std::vector<int32_t> pages(20);
    for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(3 * i % 64);
    std::ranges::shuffle(pages, random);
    for (int32_t page : pages) owners.write(page * kPageSize, P - 1);  // another's, long gone
    int64_t cached = 0;
    SequenceLayout before;
    while (cached < 60) {
      const auto n = std::uniform_int_distribution<int64_t>(1, 20)(random);
      const std::vector<int32_t> tokens(static_cast<size_t>(n), 7);
      Batch batch(kPageSize);
      batch.add(tokens, cached, pages, 1);
      const SequenceStep step(batch, kPageSize, owners, P);
      expect_holds_once(step.q(), cached, cached + n);
      expect_holds_once(step.kv(), 0, cached + n);
      for (int r = 0; r < P; ++r) {
        EXPECT_EQ(step.q().rows(r), even_part(n, P, r).size());
        const int64_t kept = cached > 0 ? before.rows(r) : 0;
        EXPECT_EQ(step.kv().rows(r), kept + step.q().rows(r));
      }
      step.record(owners);
      before = step.kv();
      cached += n;
      const auto slots = slots_of(pages, kPageSize, cached);
      expect_holds_once(owners.layout(slots), 0, cached);
      const KvGather gather(slots, owners);
      EXPECT_EQ(gather.kv().rows(0), 0);
      EXPECT_LE(gather.kv().length(), cached - before.rows(0));
      if (seed % 3 == 0) {
        gather.record(owners);
        EXPECT_TRUE(KvGather(slots, owners).empty());
      }
      EXPECT_EQ(owners.layout(slots), before) << "a copy changes no owner";
    }
  }
}

TEST(KvOwners, WritingASlotForgetsItsCopies) {
  KvOwners owners(3, 8);
  const std::vector<int32_t> slots{5, 2};
  owners.write(5, 2);
  owners.write(2, 0);
  EXPECT_EQ(owners.missing_on_first(slots).rows(2), 1);
  owners.copy_to_first(5);
  EXPECT_EQ(owners.missing_on_first(slots).length(), 0);
  EXPECT_EQ(owners.layout(slots).rows(2), 1);
  owners.write(5, 1);
  EXPECT_EQ(owners.missing_on_first(slots).rows(1), 1);
}

}  // namespace
}  // namespace braid
