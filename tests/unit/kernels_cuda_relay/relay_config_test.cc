// Which layers a relay takes, how it is cut up, and that every unit has one owner.
#include "braid/kernels/cuda/relay/relay_config.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "braid/kernels/cuda/relay/relay_layout.h"
#include "braid/kernels/cuda/relay/relay_steps.h"

namespace braid::cuda {
namespace {

// Two layers of a dense decoder.
struct Decoder {
  std::vector<RelayLinearShape> linears;
  std::vector<RelayAttentionShape> attention;

  Decoder(int64_t C, int64_t F, int64_t heads, int64_t kv_heads, int head_dim,
          int64_t page_size = 16) {
    for (int layer = 0; layer < 2; ++layer) {
      linears.push_back({.k = C, .units = (heads + 2 * kv_heads) * head_dim, .normed = true});
      linears.push_back({.k = heads * head_dim, .units = C});
      linears.push_back({.k = C, .units = F, .gated = true, .normed = true});
      linears.push_back({.k = F, .units = C});
      attention.push_back({.head_dim = head_dim,
                           .group = static_cast<int>(heads / kv_heads),
                           .kv_heads = kv_heads,
                           .page_size = page_size});
    }
  }
  std::optional<RelayConfig> choose(const RelayDevice& device = {}) const {
    return choose_relay(linears, attention, device);
  }
};

TEST(RelayConfig, ShapesOfTheField) {
  EXPECT_EQ(to_string(*Decoder(4096, 11008, 32, 32, 128).choose()),
            "relay 132 x 24 slots, heads of 1 x 128");
  EXPECT_EQ(to_string(*Decoder(4096, 14336, 32, 8, 128).choose()),
            "relay 132 x 24 slots, heads of 4 x 128");
  EXPECT_EQ(to_string(*Decoder(576, 1536, 9, 3, 64, 32).choose()),
            "relay 132 x 26 slots, heads of 3 x 64");
  // Long rows of x leave room for fewer slots.
  EXPECT_EQ(Decoder(8192, 28672, 64, 16, 128).choose()->slots, 20);
  EXPECT_EQ(Decoder(8192, 28672, 64, 16, 128).choose()->norm, kRelayMaxNorm);
}

TEST(RelayConfig, Blocks) {
  Decoder d(4096, 14336, 32, 8, 128);
  d.linears[3].weights[0] = DType::q6_k;  // the others stay bf16
  const RelayConfig config = *d.choose();
  EXPECT_EQ(to_string(config), "relay 132 x 22 slots of blocks, heads of 4 x 128");
  EXPECT_EQ(config.x_bytes, relay_x_bytes(14336, true));
  d.linears[0].weights = {DType::q4_k, DType::q8_0, DType::q6_k};  // of one linear
  EXPECT_TRUE(d.choose());
  d.linears[0].weights = {DType::bf16, DType::bf16, DType::q6_k};
  EXPECT_FALSE(d.choose());
  d.linears[0].weights = {DType::q4_k, DType::i32, DType::q4_k};
  EXPECT_FALSE(d.choose());
  EXPECT_FALSE(relay_takes(DType::f16));
  Decoder odd(4096 + 8, 11008, 32, 32, 128);  // no whole blocks
  EXPECT_TRUE(odd.choose());
  odd.linears[0].weights = {DType::q8_0, DType::q8_0, DType::q8_0};
  EXPECT_FALSE(odd.choose());
}

TEST(RelayConfig, NoMoreCtasThanPairsOfOutputs) {
  EXPECT_EQ(Decoder(64, 256, 2, 1, 64, 32).choose()->ctas, 32);
  EXPECT_EQ(Decoder(576, 1536, 9, 3, 64, 32).choose({.num_sms = 66})->ctas, 66);
}

TEST(RelayConfig, OverRanks) {
  Decoder d(4096, 5504, 16, 16, 128);
  EXPECT_FALSE(d.choose()->ranked);
  d.linears[2].summed = true;
  EXPECT_EQ(to_string(*d.choose()), "relay 132 x 26 slots, heads of 1 x 128, over ranks");
}

TEST(RelayConfig, WhatItDoesNotTake) {
  EXPECT_FALSE(Decoder(4096, 11008, 32, 32, 128).choose({.compute_capability = 80}));
  EXPECT_FALSE(Decoder(4096, 11008, 32, 2, 128).choose());       // 16 query heads to a KV head
  EXPECT_FALSE(Decoder(4096, 11008, 32, 32, 96).choose());       // no such instance
  EXPECT_FALSE(Decoder(4096, 11008, 32, 32, 128, 24).choose());  // a unit of keys in two pages
  EXPECT_FALSE(Decoder(16384, 53248, 128, 32, 128).choose());    // no registers for the norm
  EXPECT_FALSE(Decoder(4100, 11008, 32, 32, 128).choose());      // rows at odd addresses
  EXPECT_FALSE(Decoder(4096, 11009, 32, 32, 128).choose());      // no pairs
  EXPECT_FALSE(Decoder(64, 256, 64, 64, 64, 32).choose());       // keys of more than two heads
  const Decoder d(4096, 11008, 32, 32, 128);
  EXPECT_FALSE(choose_relay(std::span(d.linears).first(3), {}, {}));  // too few to pay
  EXPECT_FALSE(choose_relay({}, d.attention, {}));
}

TEST(RelayConfig, FitsSharedMemory) {
  for (int64_t C = 256; C <= 8192; C += 8 * 37) {
    for (int64_t F : {C / 8 * 16, C / 8 * 28, C / 8 * 40}) {
      const auto config = Decoder(C, F, 8, 2, 128).choose();
      if (!config) continue;
      SCOPED_TRACE(to_string(*config));
      EXPECT_LE(config->shared_bytes, 232448);
      EXPECT_GE(config->x_bytes, 2 * std::max(C, F));
      EXPECT_GE(config->x_bytes, RelayAttentionLayout(128, 4).bytes);
      EXPECT_EQ(config->slots % kRelayProducers, 0);
      EXPECT_GE(relay_in_flight(config->slots), kRelayInFlightBesideWords);
    }
  }
}

TEST(RelayConfig, ALongLinearIsSeveralSteps) {
  EXPECT_EQ(relay_parts(300), (std::vector<int32_t>{300}));
  EXPECT_EQ(relay_parts(32000), (std::vector<int32_t>{16000, 16000}));
  EXPECT_EQ(relay_parts(33004), (std::vector<int32_t>{16384, 8310, 8310}));
  for (int32_t rows = 2; rows < 200000; rows += 2 * 577) {
    SCOPED_TRACE(rows);
    int32_t all = 0;
    for (const int32_t part : relay_parts(rows)) {
      all += part;
      ASSERT_EQ(part % 2, 0);
      ASSERT_LE(part, kRelayLongRows);
      ASSERT_GE(part, std::min(rows, kRelayLongRows / 2 - 2));
    }
    ASSERT_EQ(all, rows);
  }
}

TEST(RelaySteps, EveryUnitHasOneOwner) {
  for (const int total : {1, 5, 131, 132, 133, 2048, 11008, 262144}) {
    for (const int parts : {1, 7, 132}) {
      const Shares shares(total, parts);
      int next = 0;
      for (int part = 0; part < parts; ++part) {
        const int begin = shares.begin(part), end = shares.end(part);
        ASSERT_EQ(begin, next);
        ASSERT_LE(end - begin, total / parts + 1);
        for (int i : {begin, end - 1}) {
          if (begin < end) {
            ASSERT_EQ(shares.owner(i), part);
          }
        }
        next = end;
      }
      ASSERT_EQ(next, total);
    }
  }
}

TEST(RelaySteps, EveryRowIsReadOnceForItsOutput) {
  struct Case {
    std::vector<int32_t> n;
    int32_t k;
    bool gated = false;
    std::vector<DType> dtypes = {};  // none: bf16
  };
  const Case cases[] = {{{4096, 1024, 1024}, 4096},
                        {{2048, 2048, 2048}, 4096},
                        {{4096}, 5504},
                        {{11008, 11008}, 4096, true},
                        {{300, 2}, 64},
                        {{264}, 12},
                        {{700, 700}, 264, true},
                        {{4096, 1024, 1024}, 4096, false, {DType::q4_k, DType::q4_k, DType::q6_k}},
                        {{11008, 11008}, 4096, true, {DType::q4_0, DType::q8_0}},
                        {{576}, 1536, false, {DType::q4_1}},
                        {{300, 2, 2}, 256, false, {DType::q5_k, DType::q5_0, DType::q8_0}},
                        {{264, 264}, 288, true, {DType::q5_1, DType::q5_1}}};
  for (const Case& c : cases) {
    for (const int ctas : {1, 7, 66, 132}) {
      RelayLinear s{.k = c.k, .gated = c.gated};
      for (size_t i = 0; i < c.n.size(); ++i) {
        s.n[i] = c.n[i];
        if (!c.dtypes.empty()) s.dtype[i] = c.dtypes[i];
        if (!c.gated || i == 0) s.units += c.n[i];
      }
      if (s.units / 2 < ctas) continue;
      cut_for(s, ctas);
      int32_t next[kRelayWeights] = {}, outputs = 0, most = 0;
      for (int cta = 0; cta < ctas; ++cta) {
        const RelayOutputs mine(s.cut, cta);
        ASSERT_EQ(mine.begin, outputs);
        ASSERT_GE(mine.count(), 2);  // none runs ahead of what it writes
        outputs = mine.end;
        int32_t rows_of_all = 0, slots = 0, tiles = 0;
        for (int part = 0; part < kRelayWeights; ++part) {
          const RelayRows rows(s, part, mine);
          if (rows.count > 0) {
            ASSERT_EQ(rows.first, next[part]);
          }
          next[part] += rows.count;
          rows_of_all += rows.count;
          slots += rows.slots(c.k);
          tiles += rows.tiles();
        }
        ASSERT_EQ(rows_of_all, (c.gated ? 2 : 1) * mine.count());
        most = std::max(
            most, c.dtypes.empty() ? rows_of_all + slots : tiles * kRelayTileRows * kRelayWarps);
      }
      ASSERT_EQ(outputs, s.units);
      RelayLinearShape shape{.k = c.k, .units = s.units, .gated = c.gated};
      std::ranges::copy(s.dtype, shape.weights.begin());
      const std::vector<RelayLinearShape> four(4, shape);
      if (const auto config = choose_relay(four, {}, {.num_sms = ctas})) {
        ASSERT_EQ(config->ctas, ctas);
        ASSERT_LE(most, config->sums);
      }
      for (size_t i = 0; i < c.n.size(); ++i) ASSERT_EQ(next[i], c.n[i]);
    }
  }
}

// Chunks are whole blocks and whole steps, a tile's fit a slot, and all together are a row.
TEST(RelaySteps, TilesCoverRows) {
  for (const DType dtype : {DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0,
                            DType::q4_k, DType::q5_k, DType::q6_k}) {
    for (const int k : {256, 768, 4096, 14336, 32, 576, 1376}) {
      if (k % info(dtype).block_elems != 0) continue;
      for (const int rows : {2, 16, 30, 46, 218}) {
        for (const bool boxed : {false, true}) {
          SCOPED_TRACE(fmt::format("{} k {} rows {} boxed {}", name(dtype), k, rows, boxed));
          const RelayTiles t = relay_tiles(dtype, k, rows, boxed);
          ASSERT_EQ(t.row_bytes, bytes_of(dtype, k));
          ASSERT_EQ(t.chunk_bytes, bytes_of(dtype, t.chunk_elems));
          ASSERT_TRUE(t.chunks == 1 || t.chunk_elems % 256 == 0);
          ASSERT_LT((t.chunks - 1) * t.chunk_elems, k);
          ASSERT_GE(t.chunks * t.chunk_elems, k);
          ASSERT_EQ(t.stride % 32, 0);
          ASSERT_GE(t.stride, t.chunk_bytes + (boxed && t.chunk_bytes % 16 == 0 ? 0 : 15));
          ASSERT_LE(kRelayTileRows * t.stride, kRelaySlotBytes);
          ASSERT_LE(t.stride / 2, 256);  // of a box
        }
      }
    }
  }
  // Eight warps have as much to do as each other.
  EXPECT_EQ(relay_tiles(DType::q4_k, 4096, 32, true).chunks, 8);
  EXPECT_EQ(relay_tiles(DType::q4_k, 14336, 32, true).chunks, 28);
}

TEST(RelaySteps, KeysOfAtMostTwoHeadsForACta) {
  for (const int kv_heads : {1, 2, 3, 8, 32, 40, 132}) {
    for (const int length : {1, 15, 16, 17, 100, 1024, 5000}) {
      for (const auto& [window, unit] : std::vector<std::pair<int, int>>{
               {0, 16}, {1, 16}, {16, 16}, {100, 16}, {0, 32}, {100, 32}}) {
        const RelayKeys keys(length, window, kv_heads, unit, 132);
        ASSERT_LE(keys.first_unit * unit, keys.first);
        ASSERT_GE((keys.first_unit + keys.units) * unit, length);
        ASSERT_EQ(length - keys.first, window > 0 ? std::min(window, length) : length);
        int next = 0;
        for (int cta = 0; cta < 132; ++cta) {
          const int begin = keys.shares.begin(cta), end = keys.shares.end(cta);
          ASSERT_EQ(begin, next);
          if (begin < end) {
            ASSERT_LE((end - 1) / keys.units - begin / keys.units, 1);
            ASSERT_EQ(keys.shares.owner(begin), cta);
            ASSERT_EQ(keys.shares.owner(end - 1), cta);
          }
          next = end;
        }
        ASSERT_EQ(next, kv_heads * keys.units);
      }
    }
  }
}

}  // namespace
}  // namespace braid::cuda
