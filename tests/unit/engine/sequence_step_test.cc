// Which rank computes and keeps what of a sequence, over steps of any size.
#include "braid/engine/sequence_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "braid/engine/apart_step.h"
#include "braid/engine/held_keys.h"
#include "braid/engine/local_step.h"
#include "braid/engine/sequence_ranks.h"
#include "braid/model/model_shape.h"

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

// Bytes of a rank's cache, exactly: keys in bf16, pages of 64 tokens.
TEST(RankCache, HoldsAPartOfThePages) {
  struct Fact {
    const char* config;
    int64_t tokens;
    int ranks;
    int64_t bytes;
  };
  for (const Fact& f : {Fact{"llama-3-8b", 131072, 1, 17179869184},
                        {"llama-3-8b", 131072, 4, 4294967296},
                        {"llama-3-8b", 131072, 3, 5729419264},
                        {"llama-3-8b-1m", 1048576, 8, 17179869184},
                        {"glm-4-9b-1m", 1048576, 8, 10737418240},
                        {"internlm2.5-7b-1m", 262144, 4, 8589934592},
                        {"qwen2.5-7b-1m", 262144, 2, 7516192768}}) {
    SCOPED_TRACE(fmt::format("{}, {} tokens over {}", f.config, f.tokens, f.ranks));
    const ModelConfig c =
        read_model_shape(fmt::format("{}/../configs/{}.json", BRAID_TEST_DATA, f.config)).config;
    const CacheShape all{.pages = ceil_div(f.tokens, int64_t{64})};
    const CacheShape own = rank_cache(all, f.ranks);
    EXPECT_EQ(own.pages * own.page_size * c.layers * bytes_of(DType::bf16, c.cached_numbers()),
              f.bytes);
  }
}

// Ranks with slots of their own: no two keys share one, a rank never holds more than it has room
// for, and all room is used whatever comes.
TEST(KvOwners, RanksHoldWhatTheyHaveRoomFor) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    const int P = 1 + static_cast<int>(seed % 5);
    constexpr int64_t kSlots = 60;
    const int64_t room = ceil_div(kSlots, int64_t{P});
    KvOwners owners(P, kSlots, room);
    std::vector<bool> there(kSlots);
    for (int step = 0; step < 300; ++step) {
      const auto slot = std::uniform_int_distribution<int32_t>(0, kSlots - 1)(random);
      const int rank = std::uniform_int_distribution(0, P - 1)(random);
      owners.forget(slot);
      owners.write(slot, owners.left(rank) > 0 ? rank : owners.roomiest());
      there[static_cast<size_t>(slot)] = true;
      std::vector<std::vector<bool>> held(static_cast<size_t>(P),
                                          std::vector<bool>(static_cast<size_t>(room)));
      for (int32_t i = 0; i < kSlots; ++i) {
        if (!there[static_cast<size_t>(i)]) continue;
        auto&& taken = held.at(static_cast<size_t>(owners.owner(i)))
                           .at(static_cast<size_t>(owners.held_at(i)));
        ASSERT_FALSE(taken) << "two keys in a slot";
        taken = true;
      }
      for (int r = 0; r < P; ++r) {
        ASSERT_EQ(owners.left(r), room - std::ranges::count(held[static_cast<size_t>(r)], true));
      }
    }
  }
}

TEST(KvOwners, ADepthThatNobodyComputedIsSpread) {
  KvOwners owners(3, 30, 10);
  owners.write(0, 2);
  std::vector<int32_t> slots;
  for (int32_t i = 0; i < 30; ++i) slots.push_back(i);
  owners.adopt(slots);
  for (int r = 0; r < 3; ++r) EXPECT_EQ(owners.left(r), 0);
  EXPECT_EQ(owners.owner(0), 2) << "what is there stays";
}

// What each rank is told of two sequences: all keys are somewhere, once; a row sees those up to its
// own position and inside its window.
TEST(ApartStep, RowsSeeTheKeysOfTheirPositions) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    const int P = 1 + static_cast<int>(seed % 6);
    KvOwners owners(P, 40 * kPageSize, ceil_div(40 * kPageSize, int64_t{P}));
    const std::vector<int32_t> pages[] = {{7, 1, 30, 12}, {2, 39, 0, 5}};
    std::vector<int64_t> cached(2);
    for (size_t s : {0u, 1u}) {
      Batch prompt(kPageSize);
      cached[s] = std::uniform_int_distribution<int64_t>(P, 11)(random);
      prompt.add(std::vector<int32_t>(static_cast<size_t>(cached[s]), 3), 0, pages[s], 1);
      const SequenceStep step(prompt, kPageSize, owners, P);
    }
    Batch batch(kPageSize);
    for (size_t s : {0u, 1u}) batch.add(std::vector<int32_t>(s + 2, 4), cached[s], pages[s], 1);
    HeldKeys keys(owners, kPageSize, true);
    const ApartStep step(batch, owners, keys, {0, 3});
    EXPECT_EQ(step.tokens().length(), 5);
    for (size_t s : {0u, 1u}) {
      int64_t held = 0;
      for (int r = 0; r < P; ++r) held += step.held(r, s);
      EXPECT_EQ(held, cached[s] + static_cast<int64_t>(s) + 2);
    }
    size_t row = 0;
    for (size_t s : {0u, 1u}) {
      for (int64_t i = 0; i < static_cast<int64_t>(s) + 2; ++i, ++row) {
        const int64_t position = cached[s] + i;
        int64_t all = 0, near = 0;
        for (int r = 0; r < P; ++r) {
          all += step.seen(r, 0, row).size();
          near += step.seen(r, 1, row).size();
        }
        EXPECT_EQ(all, position + 1);
        EXPECT_EQ(near, std::min<int64_t>(3, position + 1));
      }
    }
  }
}

// Sequences come, grow, go back and take each other's pages: lists that are kept from step to step
// are those that a walk over all keys gives.
TEST(HeldKeys, ListsStayTrue) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    const auto below = [&](int64_t n) {
      return std::uniform_int_distribution<int64_t>(0, n - 1)(random);
    };
    const int P = 1 + static_cast<int>(seed % 4);
    constexpr int64_t kPages = 30, kEach = 5;
    KvOwners owners(P, kPages * kPageSize, kPages * kPageSize);
    HeldKeys keys(owners, kPageSize, true);
    struct Sequence {
      std::vector<int32_t> pages;
      int64_t cached = 0;
    };
    std::vector<Sequence> sequences(4);
    int64_t kept = 0;
    for (int step = 0; step < 200; ++step) {
      keys.begin_step();
      for (Sequence& s : sequences) {
        const int64_t most = kEach * kPageSize;
        if (s.pages.empty() || s.cached == most || below(20) == 0) {  // a new one, on any pages
          s = {};
          for (int64_t i = 0; i < kEach; ++i) {
            int32_t page = 0;
            do {
              page = static_cast<int32_t>(below(kPages));
            } while (std::ranges::any_of(sequences, [&](const Sequence& other) {
              return std::ranges::count(other.pages, page) > 0;
            }));
            s.pages.push_back(page);
          }
        } else if (below(15) == 0) {
          s.cached = below(s.cached + 1);
        }
        const int64_t n = std::min<int64_t>(most - s.cached, 1 + below(below(3) == 0 ? 7 : 1));
        for (int64_t i = s.cached; i < s.cached + n; ++i) {
          owners.forget_behind(slot_of(s.pages, kPageSize, i), kPageSize);
        }
        ASSERT_TRUE(keys.complete(s.pages, s.cached));
        ASSERT_FALSE(keys.complete(s.pages, s.cached + 1));
        for (int64_t i = s.cached; i < s.cached + n; ++i) {
          owners.write(slot_of(s.pages, kPageSize, i), static_cast<int>(below(P)));
        }
        HeldKeys::Sequence& list = keys.list(s.pages, s.cached);
        kept += list.extended > 0;
        for (int64_t i = 0; i < n; ++i) keys.extend(list, s.pages);
        s.cached += n;
        std::vector<std::vector<int32_t>> slots(static_cast<size_t>(P));
        std::vector<std::vector<int64_t>> positions(static_cast<size_t>(P));
        for (int64_t i = 0; i < s.cached; ++i) {
          const int32_t slot = slot_of(s.pages, kPageSize, i);
          slots[static_cast<size_t>(owners.owner(slot))].push_back(owners.held_at(slot));
          positions[static_cast<size_t>(owners.owner(slot))].push_back(i);
        }
        ASSERT_EQ(list.slots, slots);
        ASSERT_EQ(list.positions, positions);
      }
    }
    EXPECT_GT(kept, 100);
  }
}

// A sequence goes back into the middle of a page and decodes again, over keys of the first time:
// its list is made anew once, then grows by a key a step.
TEST(HeldKeys, DecodingAgainWalksOldKeysOnce) {
  constexpr int64_t kCached = 1002, kDecoded = 40, kSize = 64;
  const std::vector<int64_t> windows{0};
  std::vector<int32_t> pages(20);
  std::iota(pages.begin(), pages.end(), 0);
  KvOwners owners(2, 20 * kSize, 10 * kSize);
  HeldKeys keys(owners, kSize, false);
  owners.adopt(slots_of(pages, kSize, kCached));
  for (int time = 0; time < 3; ++time) {
    SCOPED_TRACE(fmt::format("time {}", time));
    const int64_t before = keys.walked();
    for (int64_t i = kCached; i < kCached + kDecoded; ++i) {
      Batch batch(kSize);
      batch.add(std::vector<int32_t>{1}, i, pages, 1);
      owners.forget_behind(batch.slots()[0], kSize);
      keys.begin_step();
      ASSERT_TRUE(keys.complete(pages, i));
      const ApartStep step(batch, owners, keys, windows);
      EXPECT_EQ(step.held(0, 0) + step.held(1, 0), i + 1);
    }
    // To find owners and to list them are a walk each.
    EXPECT_LE(keys.walked() - before, 2 * kCached + kDecoded);
  }
}

// Two sequences of ranks' own beside a divided one: own tokens see all their keys on their rank,
// guests see theirs over all ranks, inside their windows.
TEST(LocalStep, RowsSeeTheKeysOfTheirPositions) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    const int P = 2 + static_cast<int>(seed % 5);
    KvOwners owners(P, 40 * kPageSize, ceil_div(40 * kPageSize, int64_t{P}));
    const std::vector<int32_t> pages[] = {{7, 1, 30, 12}, {2, 39, 0, 5}, {8, 9}};
    const int home[] = {-1, static_cast<int>(seed) % P, P - 1};
    int64_t cached[] = {std::uniform_int_distribution<int64_t>(P, 11)(random),
                        std::uniform_int_distribution<int64_t>(0, 9)(random), 0};
    Batch prompt(kPageSize);
    prompt.add(std::vector<int32_t>(static_cast<size_t>(cached[0]), 3), 0, pages[0], 1);
    const SequenceStep divided(prompt, kPageSize, owners, P);
    for (int64_t i = 0; i < cached[1]; ++i) owners.write(slot_of(pages[1], kPageSize, i), home[1]);
    const int64_t tokens[] = {1 + static_cast<int64_t>(seed % 3), 2, 5};
    Batch batch(kPageSize);
    for (size_t s = 0; s < 3; ++s) {
      batch.add(std::vector<int32_t>(static_cast<size_t>(tokens[s]), 4), cached[s], pages[s], 1,
                home[s]);
    }
    HeldKeys keys(owners, kPageSize, true);
    const std::vector<int> homes = LocalStep::homes(batch, owners, keys);
    EXPECT_EQ(homes, std::vector<int>(std::begin(home), std::end(home)));
    const LocalStep step(batch, homes, owners, keys, {0, 3});
    size_t token = 0;
    std::vector<int64_t> own(static_cast<size_t>(P));
    for (size_t s = 0; s < 3; ++s) {
      if (home[s] >= 0) own[static_cast<size_t>(home[s])] += tokens[s];
      for (int64_t i = 0; i < tokens[s]; ++i, ++token) {
        const int64_t position = cached[s] + i;
        int64_t all = 0, near = 0;
        for (int r = 0; r < P; ++r) {
          const int64_t seen = step.seen(r, 0, token).size();
          EXPECT_TRUE(home[s] < 0 || r == home[s] || seen == 0) << "an own token's on rank " << r;
          all += seen;
          near += step.seen(r, 1, token).size();
        }
        EXPECT_EQ(all, position + 1);
        EXPECT_EQ(near, std::min<int64_t>(3, position + 1));
      }
    }
    const int64_t guests = step.key().q.max_rows() - step.key().own;
    EXPECT_GE(guests, ceil_div(tokens[0], int64_t{P}));
    for (int r = 0; r < P; ++r) {
      const int64_t mine = own[static_cast<size_t>(r)];
      EXPECT_GE(step.key().own, mine);
      EXPECT_EQ(*step.rows_of(r), mine > 0 ? guests + mine : even_part(tokens[0], P, r).size());
    }
  }
}

// A sequence is divided if its rank is full, if another rank has some of its keys, or if it names
// none.
TEST(LocalStep, ASequenceWithoutRoomAtHomeIsDivided) {
  KvOwners owners(2, 8 * kPageSize, 4 * kPageSize);
  const std::vector<int32_t> pages[] = {{0, 1, 2, 3}, {4}, {5}, {6}};
  for (int64_t i = 0; i < 14; ++i) owners.write(slot_of(pages[0], kPageSize, i), 0);
  owners.write(slot_of(pages[1], kPageSize, 0), 1);
  Batch batch(kPageSize);
  const std::vector<int32_t> one{1}, three{1, 2, 3};
  batch.add(one, 14, pages[0], 1, 0);
  batch.add(one, 1, pages[1], 1, 0);    // its key is on rank 1
  batch.add(three, 0, pages[2], 1, 0);  // one place is left on rank 0
  batch.add(three, 0, pages[3], 1);
  HeldKeys keys(owners, kPageSize, false);
  EXPECT_EQ(LocalStep::homes(batch, owners, keys), (std::vector<int>{0, -1, -1, -1}));
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
