// Fused attention blocks against the scalar reference of ops/attention_block, in every size of
// cluster, both scopes and both ways of exchanges.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <random>

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

// Clusters of 1, 3 and the largest, or all; on both ways the same bits, and the same again.
void check(const FusedSpec& spec, bool all = false) {
  FusedCase c(spec);
  const FusedDevice device = fused_device(device_info(0), spec.shape.head_dim);
  for (const FusedScope scope : kScopes) {
    const auto configs = fused_candidates(spec.shape, scope, ExchangePath::chip, device);
    ASSERT_FALSE(configs.empty()) << why_not_fused(spec.shape, scope, device);
    for (FusedConfig config : configs) {
      if (!all && config.cluster != 1 && config.cluster != 3 && config.cluster != 4 &&
          config.cluster != configs[0].cluster) {
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

// Scores far below zero: no maximum begins at zero.
TEST(FusedAttention, ScoresFarBelowZero) {
  REQUIRE_CLUSTERS();
  FusedSpec s = make_spec(256, 2, 1, 64, 100);
  s.score_scale = -40;
  check(s);
}

TEST(FusedAttention, ThousandTimesTheSameBits) {
  REQUIRE_CLUSTERS();
  const FusedSpec spec = make_spec(2048, 16, 2, 64, 333);
  FusedCase c(spec);
  const FusedDevice device = fused_device(device_info(0), 64);
  for (const FusedScope scope : kScopes) {
    for (const ExchangePath path : {ExchangePath::chip, ExchangePath::memory}) {
      for (const FusedConfig& config : fused_candidates(spec.shape, scope, path, device)) {
        const std::vector<std::byte> once = c.run(config);
        for (int i = 0; i < 5; ++i) {
          ASSERT_TRUE(c.repeat(config, 200) == once) << to_string(config);
        }
      }
    }
  }
}

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
