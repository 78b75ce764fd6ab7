// Fused attention blocks against the scalar reference of ops/attention_block, in every size of
// cluster, both scopes and both ways of exchanges.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cuda/fused_attention/fused_case.h"

namespace braid::cuda::test {
namespace {

bool has_clusters() {
  int count = 0, major = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0 &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
         major == 9;
}

#define REQUIRE_CLUSTERS() \
  if (!has_clusters()) GTEST_SKIP() << "no GPU with clusters"

constexpr FusedScope kScopes[] = {FusedScope::qkv, FusedScope::projected};

FusedSpec make_spec(int64_t width, int64_t kv_heads, int group, int head_dim, int context) {
  FusedSpec s;
  s.shape = {.width = width,
             .kv_heads = kv_heads,
             .group = group,
             .head_dim = head_dim,
             .page_size = 64,
             .outputs = width};
  s.context = context;
  s.seed = static_cast<uint64_t>(context) + static_cast<uint64_t>(width);
  return s;
}

// Clusters of 1, 3, 4 and the largest, or all, with one and the most clusters of a KV head, and
// with `parts`; on both ways the same bits.
void check(const FusedSpec& spec, bool all = false, int parts = 1) {
  FusedCase c(spec);
  const FusedDevice device = fused_device(device_info(0), spec.shape.head_dim);
  for (const FusedScope scope : kScopes) {
    const auto configs = fused_candidates(spec.shape, scope, ExchangePath::chip, device, parts);
    ASSERT_FALSE(configs.empty()) << why_not_fused(spec.shape, scope, device);
    for (FusedConfig config : configs) {
      if (!all && config.cluster != 1 && config.cluster != 3 && config.cluster != 4 &&
          config.cluster != configs[0].cluster && config.parts == 1) {
        continue;
      }
      SCOPED_TRACE(to_string(spec) + ", " + to_string(config));
      const std::vector<std::byte> once = c.run(config);
      ASSERT_EQ(c.check(once, scope), "");
      config.path = ExchangePath::memory;
      ASSERT_TRUE(c.run(config) == once) << "through memory other bits";
    }
  }
}

TEST(FusedAttention, AllClusters) {
  REQUIRE_CLUSTERS();
  check(make_spec(512, 4, 1, 128, 300), true);
  check(make_spec(256, 3, 4, 64, 131), true);
}

TEST(FusedAttention, Contexts) {
  REQUIRE_CLUSTERS();
  for (const int context : {1, 2, 15, 16, 17, 31, 32, 33, 64, 65, 129, 1000}) {
    check(make_spec(512, 2, 1, 128, context));
    check(make_spec(512, 2, 2, 64, context));
  }
}

TEST(FusedAttention, Shapes) {
  REQUIRE_CLUSTERS();
  check(make_spec(4096, 6, 1, 128, 257));  // rows of a slot
  check(make_spec(5120, 2, 4, 128, 77));   // rows of two slots, of which one is short
  check(make_spec(2048, 8, 4, 64, 500));
  check(make_spec(1024, 8, 2, 128, 500));
  check(make_spec(1000, 5, 3, 64, 40));  // lines that a warp does not fill
  check(make_spec(8192, 1, 4, 128, 20));
  FusedSpec odd = make_spec(256, 3, 1, 64, 60);
  odd.shape.outputs = 34;  // fewer than CTAs have slots for
  check(odd);
}

TEST(FusedAttention, Forms) {
  REQUIRE_CLUSTERS();
  for (int bits = 0; bits < 16; ++bits) {
    FusedSpec s = make_spec(512, 3, bits % 3 == 0 ? 4 : 2, bits & 1 ? 64 : 128, 90 + bits);
    s.adds = (bits & 2) != 0;
    s.biases = (bits & 4) != 0;
    s.normed_heads = (bits & 8) != 0;
    s.interleaved = bits % 5 == 0;
    s.rotary_dim = bits % 4 == 1 ? 32 : 0;
    s.window = bits % 3 == 1 ? 50 : 0;
    s.shape.page_size = bits % 2 == 0 ? 16 : 128;
    check(s);
  }
}

// Parts of a KV head's keys, some of them without any key.
TEST(FusedAttention, PartsOfAHead) {
  REQUIRE_CLUSTERS();
  for (const int parts : {2, 3, 7, 16}) {
    for (const int context : {1, 33, 700}) {
      check(make_spec(512, 1, 2, 128, context), false, parts);
      check(make_spec(1000, 3, 1, 64, context), false, parts);
    }
  }
  FusedSpec s = make_spec(5120, 2, 4, 128, 400);
  s.window = 50;
  check(s, false, 5);
}

// All scores far below zero, cached keys' below -1e4: no maximum begins at zero. q is near 10 and
// such a key near 1 in each element, and rope turns 32 elements only.
FusedSpec far_below(FusedSpec s) {
  s.biases = s.aligned = true;
  s.rotary_dim = 32;
  s.score_scale = -2240.f / static_cast<float>(s.shape.head_dim);
  return s;
}

TEST(FusedAttention, ScoresFarBelowZero) {
  REQUIRE_CLUSTERS();
  check(far_below(make_spec(256, 2, 1, 64, 100)));
  check(far_below(make_spec(256, 2, 2, 128, 300)));
}

// Several tokens, each of its own sequence, of very unequal lengths.
FusedSpec make_batch(int64_t width, int64_t kv_heads, int group, int head_dim, int64_t tokens,
                     bool normed = true) {
  FusedSpec s = make_spec(width, kv_heads, group, head_dim, 1);
  s.shape.tokens = tokens;
  s.shape.normed = normed;
  s.seed += static_cast<uint64_t>(tokens);
  for (int64_t t = 0; t < tokens; ++t) {
    s.contexts.push_back(1 + static_cast<int>(t * t * 37 + 11 * t) % 400);
  }
  return s;
}

TEST(FusedBatch, Tokens) {
  REQUIRE_CLUSTERS();
  for (const int64_t tokens : {2, 3, 4, 5, 8, 9, 16}) {
    check(make_batch(512, 3, 1, 128, tokens));
    check(make_batch(320, 2, 4, 64, tokens, tokens % 2 == 0));
  }
}

TEST(FusedBatch, AllClusters) {
  REQUIRE_CLUSTERS();
  check(make_batch(512, 4, 2, 128, 5), true);
  check(make_batch(256, 3, 4, 64, 16, false), true);
}

TEST(FusedBatch, Shapes) {
  REQUIRE_CLUSTERS();
  check(make_batch(4096, 4, 1, 128, 16));  // exchanges of some tokens at a time
  check(make_batch(4096, 2, 8, 128, 8));
  check(make_batch(2048, 8, 4, 64, 4));
  check(make_batch(5120, 2, 5, 128, 2, false));
  check(make_batch(64, 1, 3, 64, 7));
  FusedSpec odd = make_batch(256, 3, 1, 64, 6);
  odd.shape.outputs = 34;
  check(odd);
  FusedSpec one = make_batch(1024, 4, 8, 64, 1);  // a group beyond the kernel of one token
  one.contexts = {700};
  check(one);
}

// Groups of two sets of heads, also where an exchange has some heads of a token only.
TEST(FusedBatch, LargeGroups) {
  REQUIRE_CLUSTERS();
  for (int group = 9; group <= 16; ++group) {
    check(make_batch(256 + 64 * (group % 3), 1 + group % 3, group, 64, 1 + group % 4));
    check(make_batch(512, 2, group, 128, group % 2 + 1, group % 3 != 0));
  }
  check(make_batch(2048, 2, 16, 128, 4), true);
  check(make_batch(1024, 2, 12, 64, 16));
  FusedSpec s = make_batch(512, 2, 16, 64, 7);
  s.contexts = {5, 100, 17, 3}, s.fresh = {1, 3, 1, 2};
  s.window = 16, s.biases = s.normed_heads = true;
  s.shape.cache = s.shape.weights[1] = DType::f16;
  check(s);
}

TEST(FusedBatch, Forms) {
  REQUIRE_CLUSTERS();
  for (int bits = 0; bits < 32; ++bits) {
    FusedSpec s = make_batch(bits & 16 ? 448 : 512, 3, 1 + bits % 5, bits & 1 ? 64 : 128,
                             1 + bits % 6, bits % 3 != 0);
    s.adds = (bits & 2) != 0;
    s.biases = (bits & 4) != 0;
    s.normed_heads = (bits & 8) != 0;
    s.interleaved = bits % 5 == 0;
    s.rotary_dim = bits % 4 == 1 ? 32 : 0;
    s.window = bits % 3 == 1 ? 50 : 0;
    s.shape.page_size = bits % 2 == 0 ? 16 : 128;
    if (bits % 7 > 3) s.shape.cache = DType::f16;
    for (size_t i = 0; i < 4; ++i) {
      if ((bits * 5 + static_cast<int>(i) * 3) % 7 > 4) s.shape.weights[i] = DType::f16;
    }
    check(s);
  }
}

// Tokens of one sequence see each other's new keys; slots without tokens stay as they were.
TEST(FusedBatch, SequencesOfSeveralTokens) {
  REQUIRE_CLUSTERS();
  FusedSpec s = make_batch(512, 2, 2, 128, 8);
  s.contexts = {5, 100, 17, 3};
  s.fresh = {1, 3, 1, 2};
  s.live = 7;
  check(s);
  s.window = 16;
  check(s);
  s.contexts = {16}, s.fresh = {8}, s.live = 8;
  check(s);
  s.contexts = {8}, s.window = 0;
  check(s);
}

TEST(FusedBatch, PartsOfAHead) {
  REQUIRE_CLUSTERS();
  for (const int64_t tokens : {1, 2, 5, 16}) {
    check(make_batch(512, 1, 1, 128, tokens), false, 3);
    check(make_batch(448, 2, 4, 64, tokens, false), false, 16);
  }
  check(make_batch(512, 2, 16, 128, 2), false, 7);
}

// Sequences without keys give zeros, and change nothing of others.
TEST(FusedBatch, EmptyContexts) {
  REQUIRE_CLUSTERS();
  FusedSpec spec = make_batch(256, 2, 1, 64, 4);
  spec.contexts = {9, 40, 77};
  spec.live = 3;
  FusedCase c(spec);
  const FusedConfig config = fused_config(spec.shape, FusedScope::qkv, ExchangePath::chip, 3,
                                          fused_device(device_info(0), 64));
  const std::vector<std::byte> before = c.run(config);
  ASSERT_EQ(c.check(before, FusedScope::qkv), "");
  c.empty(0);
  c.empty(2);
  const std::vector<std::byte> after = c.run(config);
  const auto row = [&](const auto& output, int t) { return c.row_of(output, FusedScope::qkv, t); };
  EXPECT_TRUE(std::ranges::equal(row(before, 1), row(after, 1)));
  for (const int t : {0, 2}) {
    EXPECT_TRUE(std::ranges::all_of(row(after, t), [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST(FusedBatch, ScoresFarBelowZero) {
  REQUIRE_CLUSTERS();
  check(far_below(make_batch(256, 2, 3, 64, 4)));
}

TEST(FusedBatch, NoNumberInOneRow) {
  REQUIRE_CLUSTERS();
  const FusedSpec spec = make_batch(512, 3, 2, 64, 6);
  FusedCase c(spec);
  const FusedDevice device = fused_device(device_info(0), 64);
  for (const FusedScope scope : kScopes) {
    const FusedConfig config = fused_config(spec.shape, scope, ExchangePath::chip, 3, device);
    const std::vector<std::byte> before = c.run(config);
    FusedCase spoilt(spec);
    spoilt.spoil(2);
    const std::vector<std::byte> after = spoilt.run(config);
    for (int t = 0; t < 6; ++t) {
      EXPECT_EQ(std::ranges::equal(c.row_of(before, scope, t), c.row_of(after, scope, t)), t != 2);
    }
  }
}

// In every candidate, on both ways: five runs of `times` repetitions end with the first run's bits.
void expect_equal_bits(const FusedSpec& spec, int times = 200) {
  FusedCase c(spec);
  const FusedDevice device = fused_device(device_info(0), spec.shape.head_dim);
  for (const FusedScope scope : kScopes) {
    for (const ExchangePath path : {ExchangePath::chip, ExchangePath::memory}) {
      for (const FusedConfig& config : fused_candidates(spec.shape, scope, path, device)) {
        const std::vector<std::byte> once = c.run(config);
        for (int i = 0; i < 5; ++i) {
          ASSERT_TRUE(c.repeat(config, times) == once) << to_string(config);
        }
      }
    }
  }
}

TEST(FusedBatch, ThousandTimesTheSameBits) {
  REQUIRE_CLUSTERS();
  expect_equal_bits(make_batch(2048, 16, 2, 64, 5));
}

TEST(FusedAttention, ThousandTimesTheSameBits) {
  REQUIRE_CLUSTERS();
  expect_equal_bits(make_spec(2048, 16, 2, 64, 333));
}

// Contexts of all four buckets of prices (decode_choice.h): right, and the same bits again.
TEST(FusedAttention, EqualBitsInEveryBucket) {
  REQUIRE_CLUSTERS();
  for (const int context : {1000, 4000, 16000}) check(make_spec(512, 1, 1, 128, context));
  for (const int context : {1000, 4000, 16000, 66000}) {
    expect_equal_bits(make_spec(512, 1, 4, 64, context), 1);
  }
}

// A launch of each kernel with a cluster of two, or two of them, and three keys, small enough for
// racecheck.
class FusedSmallest : public testing::TestWithParam<const char*> {};

TEST_P(FusedSmallest, OneLaunch) {
  REQUIRE_CLUSTERS();
  const std::string name = GetParam();
  const auto has = [&](const char* word) { return name.find(word) != std::string::npos; };
  FusedSpec spec = make_spec(64, 1, has("large") ? 9 : 1, 64, 3);
  spec.shape.outputs = 16;
  if (has("batch")) spec.shape.tokens = 2, spec.contexts = {3, 2};
  FusedCase c(spec);
  const FusedScope scope = has("projected") ? FusedScope::projected : FusedScope::qkv;
  const FusedConfig config =
      fused_config(spec.shape, scope, has("memory") ? ExchangePath::memory : ExchangePath::chip, 2,
                   fused_device(device_info(0), 64),
                   has("head") ? FusedSplit::head : FusedSplit::token, has("parts") ? 2 : 1);
  EXPECT_EQ(c.check(c.run(config), scope), "");
}

INSTANTIATE_TEST_SUITE_P(Kernels, FusedSmallest,
                         testing::Values("token", "token_memory", "token_projected", "token_parts",
                                         "token_parts_projected", "head", "head_memory", "batch",
                                         "batch_memory", "batch_projected", "batch_parts",
                                         "batch_parts_projected", "large_batch"),
                         [](const auto& info) { return std::string(info.param); });

// A wrong scale, or a key too many, does not pass for rounding.
TEST(FusedAttention, CheckTellsApart) {
  REQUIRE_CLUSTERS();
  FusedSpec spec = make_spec(512, 2, 2, 64, 100);
  spec.window = 40;
  FusedCase c(spec);
  const FusedDevice device = fused_device(device_info(0), 64);
  const FusedConfig config =
      fused_config(spec.shape, FusedScope::qkv, ExchangePath::chip, 4, device);
  const std::vector<std::byte> output = c.run(config);
  ASSERT_EQ(c.check(output, FusedScope::qkv), "");
  ops::AttentionAttrs wrong = c.attrs().attention;
  wrong.window = 41;
  c.set_reference(wrong);
  EXPECT_NE(c.check(output, FusedScope::qkv), "");
  wrong = c.attrs().attention;
  wrong.scale *= 1.1f;
  c.set_reference(wrong);
  EXPECT_NE(c.check(output, FusedScope::qkv), "");
}

}  // namespace
}  // namespace braid::cuda::test
