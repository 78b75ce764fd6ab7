// Level attention on ranks that are fewer than the levels': each computes several of their parts.
#include "dist/level_run.h"

namespace braid::testing_sp {
namespace {

// Ranks that are fewer than the levels' compute their parts: where lengths divide, as an oracle
// cuts them; at any length all keys are dense attention. 10 parts and more take several calls.
TEST(KeyLevels, FewerRanksComputeTheSameParts) {
  struct Ranks {
    int P, fewer, machines = 1;
  };
  for (const auto& [P, fewer, machines] : {Ranks{4, 2}, {6, 3}, {8, 2}, {16, 2}, {8, 4, 2}}) {
    for (int64_t cached : {0, 23}) {
      for (int64_t tokens : {int64_t{P}, int64_t{2 * P + 1}, int64_t{5 * P + 3}}) {
        expect_dense_by_all(
            {.P = P, .tokens = tokens, .cached = cached, .machines = machines, .fewer = fewer});
        if (testing::Test::HasFatalFailure()) return;
      }
      for (Importance importance : {Importance::own, Importance::probe, Importance::previous}) {
        for (const bool drops : {false, true}) {
          expect_thinned({.P = P,
                          .tokens = 10 * P,
                          .cached = cached,
                          .keep = {0.6, 0.25},
                          .groups = {2, P},
                          .scoring = 3,
                          .importance = importance,
                          .drop_queries = drops,
                          .machines = machines,
                          .fewer = fewer});
        }
      }
    }
  }
}

// Parts of fewer ranks follow each other, and are the ring's where lengths divide.
TEST(KeyLevels, PartsOfFewerRanksAreTheRings) {
  for (int P : {2, 3, 4, 8}) {
    for (int each : {2, 3, 4}) {
      const KeyLevels levels = key_levels({0.5}, {}, P * each);
      for (int64_t tokens = 1; tokens < 200; tokens += 7) {
        SCOPED_TRACE(fmt::format("{} tokens, {} of {} ranks", tokens, P, P * each));
        const SequenceLayout q = even_zigzag_layout(tokens, P, 5);
        const auto parts = level_parts(levels, q);
        const auto ring = prompt_parts(even_zigzag_layout(tokens, P * each, 5));
        ASSERT_EQ(parts.size(), ring.size());
        int64_t position = 5;
        for (size_t i = 0; i < parts.size(); ++i) {
          EXPECT_EQ(parts[i].rank, ring[i].rank);
          EXPECT_EQ(parts[i].second, ring[i].second);
          EXPECT_EQ(parts[i].position, position);
          EXPECT_GE(parts[i].rows, 0);
          EXPECT_LE(std::abs(parts[i].position - ring[i].position), P * each / 2) << i;
          if (tokens % (2 * P * each) == 0) {
            EXPECT_EQ(parts[i].position, ring[i].position);
          }
          const std::vector<int64_t> rows = positions_of(q, parts[i].rank / each);
          for (int64_t n = 0; n < parts[i].rows; ++n) {
            ASSERT_EQ(rows.at(static_cast<size_t>(parts[i].row + n)), position + n);
          }
          position += parts[i].rows;
        }
        EXPECT_EQ(position, 5 + tokens);
      }
    }
  }
}

}  // namespace
}  // namespace braid::testing_sp
