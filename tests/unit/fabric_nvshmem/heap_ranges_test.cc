#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "braid/fabric/nvshmem/heap_ranges.h"

namespace braid::fabric {
namespace {

using Place = HeapRanges::Place;

TEST(HeapRanges, TakesTheFirstRoomAndGrowsByBlocks) {
  HeapRanges heap;
  EXPECT_FALSE(heap.take(1).has_value());
  heap.add_block(4096);
  EXPECT_EQ(heap.take(0), (Place{0, 0}));  // an empty buffer has a place of its own
  EXPECT_EQ(heap.take(513), (Place{0, 512}));
  EXPECT_EQ(heap.take(2560), (Place{0, 1536}));
  EXPECT_FALSE(heap.take(1).has_value());
  heap.add_block(512);
  EXPECT_EQ(heap.take(1), (Place{1, 0}));
  heap.give({0, 512}, 513);
  EXPECT_EQ(heap.take(1024), (Place{0, 512}));
}

TEST(HeapRanges, ARangeGivenBackTwiceIsABreach) {
  HeapRanges heap;
  heap.add_block(2048);
  const Place place = *heap.take(512);
  heap.give(place, 512);
  EXPECT_THROW(heap.give(place, 512), std::logic_error);
}

// Two processes that ask alike get alike, though one gives back in another order in between, and no
// two live places overlap.
TEST(HeapRanges, PlacesFollowFromTheFreeRangesAlone) {
  constexpr unsigned kSeed = 17;
  std::mt19937 random(kSeed);
  constexpr int64_t kBlock = 64 << 10;
  HeapRanges a, b;
  struct Live {
    Place place;
    int64_t bytes;
  };
  std::vector<Live> live;
  for (int step = 0; step < 4000; ++step) {
    const auto bytes = static_cast<int64_t>(random() % 9000);
    std::optional<Place> place = a.take(bytes);
    ASSERT_EQ(place, b.take(bytes)) << "seed " << kSeed << ", step " << step;
    if (!place) {
      a.add_block(kBlock);
      b.add_block(kBlock);
      place = a.take(bytes);
      ASSERT_EQ(place, b.take(bytes));
    }
    for (const Live& other : live) {
      const bool apart = other.place.block != place->block ||
                         other.place.offset + HeapRanges::rounded(other.bytes) <= place->offset ||
                         place->offset + HeapRanges::rounded(bytes) <= other.place.offset;
      ASSERT_TRUE(apart) << "seed " << kSeed << ", step " << step;
    }
    live.push_back({*place, bytes});
    std::vector<Live> gone;
    while (live.size() > random() % 40) {
      const size_t i = random() % live.size();
      gone.push_back(live[i]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
    }
    for (const Live& l : gone) a.give(l.place, l.bytes);
    for (auto l = gone.rbegin(); l != gone.rend(); ++l) b.give(l->place, l->bytes);
  }
  for (const Live& l : live) a.give(l.place, l.bytes);
  EXPECT_EQ(a.free_bytes(), a.blocks() * kBlock);
  EXPECT_EQ(a.take(kBlock), (Place{0, 0})) << "free ranges beside each other are one";
}

}  // namespace
}  // namespace braid::fabric
