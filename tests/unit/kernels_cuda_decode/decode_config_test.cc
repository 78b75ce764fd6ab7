#include "braid/kernels/cuda/decode/decode_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "braid/base/error.h"
#include "braid/kernels/cuda/decode/layout.h"

namespace braid::cuda {
namespace {

using testing::HasSubstr;

DecodeDesc llama(int q_heads, int kv_heads, int sequences, int pages) {
  DecodeDesc d;
  d.attrs.head_dim = 128;
  d.attrs.group = q_heads / kv_heads;
  d.attrs.scale = 1.f / std::sqrt(128.f);
  d.num_q_heads = q_heads;
  d.num_kv_heads = kv_heads;
  d.page_size = 64;
  d.table_stride = pages;
  d.max_sequences = d.max_tokens = sequences;
  return d;
}

std::string refusal(const DecodeDesc& d) {
  try {
    verify(d);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(DecodeConfig, EachCandidateFits) {
  const DecodeDevice device;
  for (int head_dim : {64, 96, 128, 256}) {
    for (int sequences : {1, 33, kMaxDecodeSequences}) {
      DecodeDesc d = llama(32, 8, sequences, 64);
      d.attrs.head_dim = head_dim;
      const auto all = candidates(d, device);
      ASSERT_FALSE(all.empty());
      for (const DecodeConfig& c : all) {
        EXPECT_LE(c.shared_bytes, device.shared_bytes) << to_string(c);
        EXPECT_GT(c.workspace_bytes, 0);
        EXPECT_TRUE(c.ctas == device.num_sms || c.ctas == kMaxCtas);
        EXPECT_LE(c.ctas * c.warps, 8 * device.num_sms);
        EXPECT_LE(choose(d, device).cost_us, c.cost_us);
      }
    }
  }
}

TEST(DecodeConfig, Choice) {
  const DecodeConfig c = choose(llama(32, 32, 1, 64), {});
  EXPECT_EQ(c.ctas, 132);
  EXPECT_EQ(c.warps, 8);
  EXPECT_THAT(to_string(c), HasSubstr("132 CTAs of 8 warps"));
  // With as many heads as that, two CTAs an SM.
  EXPECT_THAT(to_string(choose(llama(32, 32, 8, 64), {})), HasSubstr("256 CTAs of 4 warps"));
  EXPECT_THAT(to_string(choose(llama(32, 8, 32, 64), {})), HasSubstr("256 CTAs of 4 warps"));
  EXPECT_THAT(to_string(choose(llama(32, 8, 16, 64), {})), HasSubstr("132 CTAs of 8 warps"));
  EXPECT_EQ(to_string(llama(32, 8, 16, 64)), "bf16 S16 T16 Hq32 Hkv8 D128 page64");
}

TEST(DecodeConfig, TakesStepsOfFewTokensEach) {
  EXPECT_TRUE(few_tokens_each(1, 1));
  EXPECT_TRUE(few_tokens_each(32, 1));
  EXPECT_FALSE(few_tokens_each(33, 1)) << "a prompt";
  EXPECT_TRUE(few_tokens_each(64, 64)) << "a decode step";
  EXPECT_TRUE(few_tokens_each(320, 320));
  EXPECT_TRUE(few_tokens_each(129, 128)) << "on three ranks";
  EXPECT_FALSE(few_tokens_each(256, 128)) << "a prompt beside 32 decodes";
  EXPECT_FALSE(few_tokens_each(960, 512)) << "a prompt beside 128 decodes";
}

TEST(DecodeConfig, Refusals) {
  const DecodeDesc good = llama(32, 8, 4, 64);
  EXPECT_EQ(refusal(good), "accepted");
  const auto with = [&](auto change) {
    DecodeDesc d = good;
    change(d);
    return refusal(d);
  };
  EXPECT_THAT(with([](auto& d) { d.attrs.head_dim = 80; }), HasSubstr("head dim 80"));
  EXPECT_THAT(with([](auto& d) { d.cache_dtype = DType::f32; }), HasSubstr("the cache is f32"));
  EXPECT_THAT(with([](auto& d) { d.q_dtype = DType::f16; }), HasSubstr("q is f16"));
  EXPECT_THAT(with([](auto& d) { d.page_size = 8; }), HasSubstr("page size 8"));
  EXPECT_THAT(with([](auto& d) { d.attrs.head_offset = 1; }), HasSubstr("offset 1"));
  EXPECT_THAT(with([](auto& d) { d.max_sequences = 5000; }), HasSubstr("5000 sequences"));
  EXPECT_THAT(with([](auto& d) { d.attrs.scale = 0; }), HasSubstr("scale 0"));
  EXPECT_THAT(with([](auto& d) { d.table_stride = 1 << 20; }), HasSubstr("keys a sequence"));
  EXPECT_THAT(with([](auto& d) {
                d.max_tokens = 1 << 16;
                d.table_stride = 1 << 18;
              }),
              HasSubstr("units of work"));
}

TEST(DecodeConfig, KvHeadsReadOfUnevenParts) {
  DecodeDesc d = llama(5, 1, 1, 4);
  d.attrs.group = 3;
  d.attrs.head_offset = 2;
  d.num_kv_heads = 3;  // heads 2..6 of groups of 3: KV heads 0..2
  EXPECT_EQ(kv_heads_read(d).first, 0);
  EXPECT_EQ(kv_heads_read(d).count, 3);
  EXPECT_EQ(refusal(d), "accepted");
}

}  // namespace
}  // namespace braid::cuda
