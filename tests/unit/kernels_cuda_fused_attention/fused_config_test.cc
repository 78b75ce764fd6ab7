// Which blocks the fused kernel takes, why not the others, and how rows and memory are dealt.
#include "braid/kernels/cuda/fused_attention/fused_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/base/math.h"
#include "braid/kernels/cuda/fused_attention/batch_layout.h"
#include "braid/kernels/cuda/fused_attention/fused_layout.h"

namespace braid::cuda {
namespace {

using testing::HasSubstr;

FusedShape llama_7b() {
  return {
      .width = 4096, .kv_heads = 32, .group = 1, .head_dim = 128, .page_size = 64, .outputs = 4096};
}

// Of an H100 as it was measured.
FusedDevice h100() {
  return {.clusters = {0, 132, 66, 39, 30, 22, 17, 15, 15, 9, 7, 7, 7, 7, 7, 7, 7}};
}

TEST(FusedConfig, TakesClustersThatFitAtOnce) {
  std::vector<int> sizes;
  for (const FusedConfig& c :
       fused_candidates(llama_7b(), FusedScope::projected, ExchangePath::chip, h100())) {
    sizes.push_back(c.cluster);
    EXPECT_EQ(c.ctas, 32 * c.members());
    EXPECT_EQ(c.slots % kFusedWarps, 0);
    EXPECT_LE(c.shared_bytes, h100().smem_per_cta);
  }
  EXPECT_THAT(sizes, testing::ElementsAre(3, 2, 1, 2, 2, 1));
  // The fourth has divided heads, the last have two and four clusters for a KV head.
  EXPECT_EQ(why_not_fused(llama_7b(), FusedScope::projected, 4, h100()),
            "32 KV heads as clusters of 4 CTAs: the GPU runs 30 at once");
  EXPECT_EQ(why_not_fused(llama_7b(), FusedScope::projected, 17, h100()),
            "clusters of 17 CTAs: 1 to 16");
  EXPECT_EQ(why_not_fused(llama_7b(), FusedScope::projected, 0, h100()),
            "clusters of 0 CTAs: 1 to 16");
}

// Up to attention, clusters beyond those at once come in waves.
TEST(FusedConfig, ClustersInWaves) {
  const auto configs = fused_candidates(llama_7b(), FusedScope::qkv, ExchangePath::chip, h100());
  ASSERT_EQ(configs.size(), static_cast<size_t>(kMaxCluster + 3 + 2));
  for (const FusedConfig& c : configs) {
    EXPECT_EQ(c.ctas, 32 * c.members());
    if (c.parts > 1) continue;
    EXPECT_EQ(c.at_once, std::min(32, h100().clusters[static_cast<size_t>(c.cluster)]) * c.cluster);
  }
}

// Several clusters of a KV head wait for each other: all run at once.
TEST(FusedConfig, PartsOfAHeadRunAtOnce) {
  FusedShape s = llama_7b();
  s.kv_heads = 8;
  for (int cluster = 1; cluster <= kMaxCluster; ++cluster) {
    const int at_once = h100().clusters[static_cast<size_t>(cluster)];
    for (int parts = 2; parts <= kFusedMaxParts; ++parts) {
      const std::string why =
          why_not_fused(s, FusedScope::qkv, cluster, h100(), FusedSplit::token, parts);
      EXPECT_EQ(why.empty(), 8 * parts <= at_once) << cluster << " x " << parts << ": " << why;
      if (!why.empty()) continue;
      const FusedConfig c = fused_config(s, FusedScope::qkv, ExchangePath::chip, cluster, h100(),
                                         FusedSplit::token, parts);
      EXPECT_EQ(c.at_once, c.ctas);
      EXPECT_EQ(c.ctas, 8 * parts * cluster);
    }
  }
  const auto why = [&](int cluster, int parts, FusedSplit split) {
    return why_not_fused(s, FusedScope::qkv, cluster, h100(), split, parts);
  };
  EXPECT_EQ(why(2, 17, FusedSplit::token), "17 clusters of a KV head: 1 to 16");
  EXPECT_EQ(why(2, 0, FusedSplit::token), "0 clusters of a KV head: 1 to 16");
  EXPECT_EQ(why(2, 2, FusedSplit::head), "split=head with 2 clusters of a KV head: 1");
  EXPECT_EQ(why(8, 2, FusedSplit::token),
            "8 KV heads as 2 clusters of 8 CTAs each: the GPU runs 15 at once");
  const auto configs = fused_candidates(s, FusedScope::qkv, ExchangePath::chip, h100(), 3);
  const auto has = [&](int cluster, int parts) {
    return std::ranges::any_of(
        configs, [&](const FusedConfig& c) { return c.cluster == cluster && c.parts == parts; });
  };
  EXPECT_TRUE(has(2, 8) && has(2, 3) && has(1, 16) && has(6, 2) && !has(2, 7) && !has(8, 2));
}

// Heads divided over a cluster have whole lines of 32 bytes on each CTA, and one more place in
// shared memory for scores: this CTA's, and sums.
TEST(FusedConfig, DividesHeads) {
  const auto sizes = [](const FusedShape& s) {
    std::vector<int> result;
    for (const FusedConfig& c : fused_candidates(s, FusedScope::qkv, ExchangePath::chip, h100())) {
      if (c.split == FusedSplit::token) continue;
      const ExchangeDesc scores = fused_scores(s, c.cluster);
      EXPECT_LE(c.shared_bytes, h100().smem_per_cta);
      EXPECT_GE(c.inbox_bytes, exchange_inbox_bytes(scores, choose_exchange(scores)));
      EXPECT_EQ(fused_keys(s, c.cluster, c.split) * s.head_dim / c.cluster * 4, kFusedSlotBytes);
      result.push_back(c.cluster);
    }
    return result;
  };
  FusedShape s = llama_7b();
  EXPECT_THAT(sizes(s), testing::ElementsAre(8, 4, 2));
  s.head_dim = 64, s.group = 4;
  EXPECT_THAT(sizes(s), testing::ElementsAre(4, 2));
  s.tokens = 2;
  EXPECT_THAT(sizes(s), testing::IsEmpty());
  const auto why = [](int cluster, int64_t page_size) {
    FusedShape odd = llama_7b();
    odd.page_size = page_size;
    return why_not_fused(odd, FusedScope::qkv, cluster, h100(), FusedSplit::head);
  };
  EXPECT_EQ(why(1, 64), "split=head, heads of 128 over 1 CTAs: parts of 16, 32 or 64 elements");
  EXPECT_EQ(why(16, 64), "split=head, heads of 128 over 16 CTAs: parts of 16, 32 or 64 elements");
  EXPECT_EQ(why(8, 16), "");
  EXPECT_EQ(why(2, 48), "split=head, pages of 48 keys: multiples or divisors of 32");
}

TEST(FusedConfig, SaysWhyNot) {
  const auto why = [](auto change, FusedScope scope = FusedScope::projected) {
    FusedShape s = llama_7b();
    change(s);
    return why_not_fused(s, scope, h100());
  };
  EXPECT_EQ(why([](FusedShape&) {}), "");
  EXPECT_EQ(why([](FusedShape& s) { s.tokens = 17; }), "17 tokens a step: 16 at most");
  EXPECT_EQ(why([](FusedShape& s) { s.head_dim = 80; }), "head dim 80: 64 or 128");
  EXPECT_EQ(why([](FusedShape& s) { s.group = 32; }), "32 query heads for a KV head: 1 to 16");
  EXPECT_EQ(why([](FusedShape& s) { s.weights[1] = DType::q4_k; }),
            "weight k is q4_k: bf16 or f16");
  EXPECT_EQ(why([](FusedShape& s) { s.weights[3] = DType::q8_0; }),
            "weight o is q8_0: bf16 or f16");
  EXPECT_EQ(why([](FusedShape& s) { s.weights[3] = DType::q8_0; }, FusedScope::qkv), "");
  EXPECT_EQ(why([](FusedShape& s) { s.cache = DType::f32; }), "a cache in f32: bf16 or f16");
  EXPECT_EQ(why([](FusedShape& s) { s.width = 9000; }),
            "rows of 9000 elements: multiples of 8 up to 8192");
  EXPECT_THAT(why([](FusedShape& s) { s.page_size = 24; }), HasSubstr("pages of 24 keys"));
  EXPECT_THAT(why([](FusedShape& s) { s.softcap = true; }), HasSubstr("softcap"));
  EXPECT_THAT(why([](FusedShape& s) { s.even_heads = false; }), HasSubstr("whole groups"));
  EXPECT_EQ(why([](FusedShape& s) { s.width = 1000; }), "");
  EXPECT_EQ(why([](FusedShape& s) { s.width = 1000, s.tokens = 2; }),
            "rows of 1000 elements: multiples of 64, but for one token in bf16");
  FusedDevice old = h100();
  old.compute_capability = 80;
  EXPECT_EQ(why_not_fused(llama_7b(), FusedScope::qkv, old),
            "a GPU of compute capability 8.0 has no clusters: 9.0");
}

// Dtypes, groups and inputs beyond the kernel of a single token.
TEST(FusedConfig, BatchesWhatOneTokenDoesNotTake) {
  const auto batches = [](auto change) {
    FusedShape s = llama_7b();
    change(s);
    EXPECT_EQ(why_not_fused(s, FusedScope::projected, h100()), "");
    return fused_batches(s);
  };
  EXPECT_FALSE(batches([](FusedShape&) {}));
  EXPECT_TRUE(batches([](FusedShape& s) { s.tokens = 16; }));
  EXPECT_TRUE(batches([](FusedShape& s) { s.group = 8; }));
  EXPECT_TRUE(batches([](FusedShape& s) { s.group = 16; }));
  EXPECT_TRUE(batches([](FusedShape& s) { s.normed = false; }));
  EXPECT_TRUE(batches([](FusedShape& s) { s.cache = DType::f16; }));
  EXPECT_TRUE(batches([](FusedShape& s) { s.weights[2] = DType::f16; }));
}

// All tokens, groups and clusters that fit have rings of whole eights, and exchanges that fit.
TEST(FusedConfig, BatchesFitSharedMemory) {
  for (const int64_t tokens : {1, 2, 4, 7, 8, 16}) {
    for (const int group : {1, 4, tokens <= 8 ? 8 : 2, tokens <= 8 ? 9 : 3, tokens <= 4 ? 16 : 2}) {
      FusedShape s = llama_7b();
      s.tokens = tokens, s.group = group, s.kv_heads = 8, s.normed = false;
      const auto configs = fused_candidates(s, FusedScope::projected, ExchangePath::chip, h100());
      EXPECT_FALSE(configs.empty()) << tokens << " x " << group;
      for (const FusedConfig& c : configs) {
        const FusedBatchShape shape = fused_batch(s, c);
        const FusedBatchLayout layout(shape);
        EXPECT_EQ(c.slots % kFusedWarps, 0);
        EXPECT_GE(c.each, 1);
        EXPECT_GE(c.heads, c.each > 1 ? group : 1);
        // Exchanges of a launch, and a row of words, have tags of their own.
        EXPECT_LT(ceil_div(tokens, int64_t{c.each}) * (1 + ceil_div(group, c.heads)), 512);
        EXPECT_EQ(layout.bytes, c.shared_bytes);
        EXPECT_LE(c.shared_bytes, h100().smem_per_cta);
        EXPECT_LE(layout.inbox + 2 * c.inbox_bytes, layout.part);
        EXPECT_GE(c.inbox_bytes, c.cluster * 2 * c.each * shape.head_rows);
        // Rows of four tokens lie in the place of pieces (FusedBatch::pass_rows).
        EXPECT_LE(2 * std::min<int64_t>(tokens, 4) * (group + 2) * s.head_dim,
                  layout.q - layout.pieces);
      }
    }
  }
  // Some heads of a token at a time, where whole groups leave no room for a ring.
  FusedShape large = llama_7b();
  large.group = 16, large.kv_heads = 2, large.tokens = 4;
  EXPECT_EQ(fused_config(large, FusedScope::qkv, ExchangePath::chip, 8, h100()).heads, 4);
  large.tokens = 8;
  EXPECT_THAT(why_not_fused(large, FusedScope::qkv, 8, h100()),
              HasSubstr("bytes of shared memory beside 8 slots"));
  FusedShape wide = llama_7b();
  wide.tokens = 16, wide.width = 8192;
  EXPECT_THAT(why_not_fused(wide, FusedScope::qkv, 1, h100()),
              HasSubstr("bytes of shared memory beside 8 slots"));
}

// Slots of a phase go through all units once, and each warp through a range of units.
TEST(FusedConfig, PartsCoverAllUnits) {
  for (const int begin : {0, 3, 13}) {
    for (int units = 0; units < 40; ++units) {
      const FusedParts parts(begin, units);
      std::vector<int> at(kFusedWarps);
      for (int warp = 0; warp < kFusedWarps; ++warp) {
        at[static_cast<size_t>(warp)] = parts.parts.begin(parts.part_of(warp));
      }
      for (int slot = begin; slot < parts.end(); ++slot) {
        EXPECT_EQ(parts.unit(slot), at[static_cast<size_t>(slot % kFusedWarps)]++);
      }
      for (int warp = 0; warp < kFusedWarps; ++warp) {
        EXPECT_EQ(at[static_cast<size_t>(warp)], parts.parts.end(parts.part_of(warp)));
      }
    }
  }
}

TEST(FusedConfig, RowsFillSlots) {
  EXPECT_EQ(fused_rows(4096).rows, 1);
  EXPECT_EQ(fused_rows(4096).parts, 1);
  EXPECT_EQ(fused_rows(1024).rows, 4);
  EXPECT_EQ(fused_rows(1536).rows, 2);
  EXPECT_EQ(fused_rows(5120).parts, 2);
  for (int64_t k = 8; k <= 16384; k += 8) {
    const FusedRows r = fused_rows(k);
    EXPECT_LE(r.parts == 1 ? r.rows * r.row_bytes : 0, kFusedSlotBytes) << k;
    EXPECT_TRUE(r.rows == 1 || r.parts == 1) << k;
  }
}

// Every row of q, k and v has one owner, and no slot has rows of two weights.
TEST(FusedConfig, EveryRowHasOneOwner) {
  for (const int width : {256, 1000, 1024, 2048, 4096, 5120}) {
    for (const int head_dim : {64, 128}) {
      for (int group = 1; group <= kFusedFewHeads; ++group) {
        for (int cluster = 1; cluster <= kMaxCluster; ++cluster) {
          const FusedHeadRows rows(width, group, head_dim, cluster);
          EXPECT_EQ(head_dim % rows.form.rows, 0);
          int next = 0;
          for (int rank = 0; rank < cluster; ++rank) {
            EXPECT_EQ(rows.begin(rank), next);
            next = rows.end(rank);
            EXPECT_LE(next - rows.begin(rank), rows.most());
            for (int row = rows.begin(rank); row < next; ++row) {
              ASSERT_EQ(rows.groups.owner(row / rows.form.rows), rank);
            }
          }
          EXPECT_EQ(next, rows.total);
        }
      }
    }
  }
}

TEST(FusedConfig, BytesAreThoseOfWeightsAndKeys) {
  EXPECT_EQ(fused_bytes(llama_7b(), FusedScope::qkv, 0), int64_t{2} * 3 * 4096 * 4096);
  EXPECT_EQ(fused_bytes(llama_7b(), FusedScope::projected, 1024),
            int64_t{2} * 4 * 4096 * 4096 + int64_t{2} * 2 * 1024 * 4096);
}

}  // namespace
}  // namespace braid::cuda
