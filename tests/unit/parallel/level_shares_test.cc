// Shares of pairs and far keys in thinning layers, against counts of each pair.
#include "braid/parallel/attention/level_shares.h"

#include <gtest/gtest.h>

#include <cmath>

namespace braid {
namespace {

struct Part {
  int half, rank;
  int64_t begin, rows;
};

std::vector<Part> parts_of(int64_t tokens, int P) {
  std::vector<Part> parts;
  int64_t at = 0;
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < P; ++i) {
      const int rank = half == 0 ? i : P - 1 - i;
      const int64_t all = tokens / P + (rank < tokens % P);
      const int64_t rows = half == 0 ? all - all / 2 : all / 2;
      parts.push_back({half, rank, at, rows});
      at += rows;
    }
  }
  return parts;
}

// With all ranks in one level: each pair of tokens is looked at.
LevelShares counted(double keep, const std::vector<AttentionLayer>& layers, int64_t tokens, int P,
                    int64_t cached) {
  const std::vector<Part> parts = parts_of(tokens, P);
  LevelShares s;
  for (const AttentionLayer& layer : layers) {
    for (size_t i = 0; i < parts.size(); ++i) {
      for (int64_t q = parts[i].begin; q < parts[i].begin + parts[i].rows; ++q) {
        for (int64_t k = -cached; k <= q; ++k) {
          if (layer.window > 0 && q - k >= layer.window) continue;
          ++s.dense_pairs;
          bool seen = k < 0 || !layer.thins || k >= parts[i].begin;
          for (size_t j = 0; !seen && j < i; ++j) {  // any of a part's keys, as many as are kept
            const int64_t at = k - parts[j].begin;
            seen = at >= 0 && at < std::ceil(keep * static_cast<double>(parts[j].rows)) &&
                   at < parts[j].rows;
          }
          s.pairs += seen;
        }
      }
    }
    if (layer.window > 0) continue;
    for (int reader = 0; reader < P; ++reader) {
      for (size_t j = 0; j < parts.size(); ++j) {
        if (parts[j].rank == reader) continue;
        bool read = false;
        for (size_t i = j + 1; i < parts.size(); ++i) {
          read = read || (parts[i].rank == reader && parts[i].rows > 0);
        }
        if (!read) continue;
        const auto rows = static_cast<double>(parts[j].rows);
        s.dense_far_keys += rows;
        s.far_keys += layer.thins ? std::ceil(keep * rows) : rows;
      }
    }
  }
  return s;
}

TEST(LevelShares, EqualTheCounts) {
  const std::vector<AttentionLayer> layers = {{0, false}, {0, true},   {7, false},
                                              {0, true},  {50, false}, {0, false}};
  for (int P : {2, 3, 4}) {
    for (int64_t tokens : {P, 2 * P + 1, 40, 61}) {
      for (int64_t cached : {0, 5, 60}) {
        for (double keep : {0.3, 0.5, 1.0}) {
          SCOPED_TRACE(fmt::format("{} tokens behind {}, {} ranks, {}", tokens, cached, P, keep));
          const SequenceLayout q = even_zigzag_layout(tokens, P, cached);
          const LevelShares got = level_shares(key_levels({keep}, {}, P), layers, q, cached);
          const LevelShares want = counted(keep, layers, tokens, P, cached);
          EXPECT_NEAR(got.pairs, want.pairs, 1e-6);
          EXPECT_EQ(got.dense_pairs, want.dense_pairs);
          EXPECT_EQ(got.far_keys, want.far_keys);
          EXPECT_EQ(got.dense_far_keys, want.dense_far_keys);
          EXPECT_EQ(got.thinned(), want.pairs < want.dense_pairs);
          const LevelShares alone = level_shares(key_levels({keep}, {}, P), layers,
                                                 even_layout(tokens, 1, cached), cached);
          EXPECT_EQ(alone.pairs, got.pairs) << "a rank with the parts of all";
          EXPECT_EQ(alone.far_keys, got.far_keys);
          if (P != 4 || tokens % (2 * P) != 0) continue;
          const LevelShares two = level_shares(key_levels({keep}, {}, P), layers,
                                               even_zigzag_layout(tokens, 2, cached), cached);
          EXPECT_EQ(two.pairs, got.pairs) << "two ranks with the parts of four";
          EXPECT_EQ(two.far_keys, got.far_keys);
        }
      }
    }
  }
}

TEST(LevelShares, AreExplainedByLayer) {
  const KeyLevels half = key_levels({0.5}, {}, 2);
  std::vector<AttentionLayer> layers(32, {.thins = true});
  layers.front().thins = layers.back().thins = false;
  EXPECT_EQ(explain_levels(half, layers, even_zigzag_layout(40, 2), 0),
            "layers 1 to 30: 63.4% of pairs, 50.0% of far keys; 0, 31: all");
  layers[7] = {.window = 64};
  EXPECT_EQ(explain_levels(half, layers, even_zigzag_layout(40, 2), 0),
            "layers 1 to 6, 8 to 30: 63.4% of pairs, 50.0% of far keys; 0, 7, 31: all");
}

}  // namespace
}  // namespace braid
