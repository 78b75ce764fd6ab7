// What a Program's decode step is read as.
#include "braid/kernels/cuda/decode_choice/describe_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/ops/fusion.h"
#include "unit/parallel/decoder_program.h"

namespace braid::cuda {
namespace {

using namespace testing_decoder;

Program decoder_of(int64_t T, DType activations) {
  return fuse(fuse(decoder(T, 3, activations), fusions()), few_token_fusions());
}

TEST(DescribeStep, ReadsADecoder) {
  const auto step = describe_step(decoder_of(1, DType::bf16), 4096);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->layers, 3);
  EXPECT_EQ(step->block.width, kC);
  EXPECT_EQ(step->block.kv_heads, kHkv);
  EXPECT_EQ(step->block.group, kHq / kHkv);
  EXPECT_EQ(step->block.head_dim, kD);
  EXPECT_EQ(step->block.outputs, kC);
  EXPECT_EQ(step->block.page_size, 16);
  EXPECT_EQ(step->block.cache, DType::f16);
  EXPECT_THAT(step->block.weights, testing::Each(DType::f16));
  EXPECT_EQ(step->down_bytes, 2 * kC * kF);
  EXPECT_EQ(step->ffn_bytes, 3 * 2 * kC * kF);  // in this decoder both are read by one norm_linear
  EXPECT_EQ(step->head_bytes, 2 * kC * kV);
  EXPECT_EQ(step->context, 4096);
  EXPECT_EQ(step->no_relay, "weights in f16: bf16 or blocks");
  EXPECT_EQ(step->no_fused, "");
}

// As many tokens as sequences, and few: no prompts.
TEST(DescribeStep, TakesStepsOfFewTokens) {
  const auto step = describe_step(decoder_of(2, DType::bf16), 1);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->block.tokens, 2);
  EXPECT_TRUE(step->block.normed);
  EXPECT_EQ(step->no_relay, "2 tokens a step: 1");
  EXPECT_EQ(step->no_fused, "");
  EXPECT_FALSE(describe_step(decoder_of(4, DType::bf16), 1));
  EXPECT_FALSE(describe_step(decoder_of(64, DType::bf16), 1));
}

// Steps of more sequences than a block takes have a reason too.
TEST(DescribeStep, OfManySequences) {
  const auto step = describe_step(fuse(decoder(17, 3, DType::bf16, 17), fusions()), 1);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->block.tokens, 17);
  EXPECT_THAT(why_not_fused(step->block, FusedScope::qkv, FusedDevice{}),
              testing::HasSubstr("17 tokens a step: 16 at most"));
}

// Norms stay apart from many tokens on.
TEST(DescribeStep, OfBlocksWithoutTheirNorm) {
  const auto step = describe_step(fuse(decoder(2, 3, DType::bf16), fusions()), 1);
  ASSERT_TRUE(step);
  EXPECT_FALSE(step->block.normed);
  EXPECT_EQ(step->no_fused, "");
  EXPECT_EQ(describe_step(fuse(decoder(2, 3), fusions()), 1)->no_fused, "an input in f32: bf16");
}

}  // namespace
}  // namespace braid::cuda
