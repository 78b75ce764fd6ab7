#include "braid/kernels/cuda/decode/plan.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "braid/kernels/cuda/decode/layout.h"

namespace braid::cuda {
namespace {

TEST(DecodePlan, DealCoversAndFindsOwners) {
  std::mt19937 rng(3);
  for (int round = 0; round < 300; ++round) {
    const int parts = 1 + static_cast<int>(rng() % 200);
    const int total = static_cast<int>(rng() % 2000);
    const Deal deal(total, parts);
    ASSERT_EQ(deal.begin(0), 0);
    ASSERT_EQ(deal.begin(parts), total) << total << " over " << parts;
    for (int p = 0; p < parts; ++p) {
      const int n = deal.begin(p + 1) - deal.begin(p);
      ASSERT_GE(n, total / parts);
      ASSERT_LE(n, (total + parts - 1) / parts);
      for (int i = deal.begin(p); i < deal.begin(p + 1); ++i) {
        ASSERT_EQ(deal.owner(i), p) << i << " of " << total << " over " << parts;
      }
    }
  }
}

TEST(DecodePlan, SequenceWorkCoversTheVisibleKeys) {
  for (int log2 : {4, 5}) {
    const int keys_per_unit = 1 << log2;
    for (int window : {0, 1, 7, 100}) {
      for (int group : {1, 3, 8, 12}) {
        for (int kv_len : {0, 1, 15, 16, 17, 100, 1000}) {
          for (int q_len : {0, 1, 3, 8}) {
            const SequenceWork w = sequence_work({log2, group, 2, window}, q_len, kv_len);
            EXPECT_EQ(w.tiles, (q_len * group + kTileRows - 1) / kTileRows);
            EXPECT_EQ(w.items, 2 * w.tiles);
            EXPECT_GE(w.units, 1);
            EXPECT_GE((w.first_unit + w.units) * keys_per_unit, kv_len);
            const int first = kv_len - q_len;  // position of the first new token
            const int low = window > 0 ? std::max(0, first - window + 1) : 0;
            EXPECT_LE(w.first_unit * keys_per_unit, low);
            EXPECT_GT((w.first_unit + 1) * keys_per_unit, low) << "a unit too early";
          }
        }
      }
    }
  }
}

int working_ctas(int units, int items) {
  return deal_to_ctas(units, items, 132, 3).parts;
}

TEST(DecodePlan, WorkingCtas) {
  // Llama-2-7B at 1K: 32 heads of 64 units; four CTAs a head cost no more rounds than 132.
  EXPECT_EQ(working_ctas(32 * 64, 32), 128);
  EXPECT_EQ(working_ctas(128 * 256, 128), 128);
  // With 97 units a head they would: four rounds instead of three.
  EXPECT_EQ(working_ctas(32 * 97, 32), 132);
  // Eight units keep one CTA's warps busy.
  EXPECT_EQ(working_ctas(8, 1), 1);
  EXPECT_EQ(working_ctas(0, 0), 1);
  EXPECT_EQ(working_ctas(1000000, 4001), 132);
  // 16 and 32 sequences of 1K: four and eight heads a CTA.
  EXPECT_EQ(working_ctas(16 * 32 * 65, 16 * 32), 128);
  EXPECT_EQ(working_ctas(32 * 32 * 65, 32 * 32), 128);
  // 16 sequences of 8 heads, a head a CTA: nine rounds instead of eight.
  EXPECT_EQ(working_ctas(16 * 8 * 65, 16 * 8), 128);
  // Five heads a CTA would leave 12 of them idle.
  EXPECT_EQ(working_ctas(600 * 65, 600), 132);
  for (int units : {1, 9, 100, 5000}) {
    for (int items : {1, 3, 40, 1000}) {
      const int n = working_ctas(units, items);
      EXPECT_GE(n, 1);
      EXPECT_LE(n, 132);
    }
  }
}

TEST(DecodePlan, LayoutsDoNotOverlap) {
  for (int head_dim : {64, 96, 128, 256}) {
    for (int warps : {2, 4, 8}) {
      const DecodeShared s(head_dim, warps, 77);
      EXPECT_GE(s.stats - s.pieces, warps * kTileRows * piece_row(head_dim) * 4);
      EXPECT_EQ(s.items % 16, 0);
      EXPECT_EQ(s.sequences % 16, 0);
      EXPECT_EQ(s.pieces % 16, 0);
      EXPECT_GE(s.bytes, s.scan + 8 * warps);
      EXPECT_LE(kTileRows * piece_row(head_dim) * 4, ring_bytes(head_dim));
      const DecodeWorkspace w(head_dim, 132);
      EXPECT_EQ(w.pieces % 16, 0);
      EXPECT_GE(w.stats, 132 * 4);
    }
  }
}

}  // namespace
}  // namespace braid::cuda
