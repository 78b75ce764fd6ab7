// How a pipeline's components share a GPU's memory.
#include "braid/engine/diffusion/pipeline_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/base/error.h"

namespace braid {
namespace {

constexpr int64_t kGb = 1000000000;

std::vector<ComponentMemory> flux() {
  return {
      {"transformer", 24 * kGb, kGb}, {"vae", kGb / 5, 2 * kGb}, {"text_encoder_2", 10 * kGb, kGb}};
}

TEST(PipelineMemory, AllStayWhereTheyFit) {
  const PipelineMemory m = plan_memory(flux(), 80 * kGb, "cuda:0");
  EXPECT_TRUE(m.together);
  EXPECT_EQ(m.most, 24 * kGb + kGb + kGb / 5 + 2 * kGb + 11 * kGb);
  EXPECT_THAT(to_string(m), testing::HasSubstr("transformer 24.0 + 1.0 GB"));
}

TEST(PipelineMemory, ComponentsTakeTurnsWhereTheyDoNot) {
  const PipelineMemory m = plan_memory(flux(), 30 * kGb, "cuda:0");
  EXPECT_FALSE(m.together);
  EXPECT_EQ(m.most, 25 * kGb);
  EXPECT_THAT(to_string(m), testing::HasSubstr("one after another: 25.0 GB at once"));
}

std::string refused(const std::vector<ComponentMemory>& components, int64_t free) {
  try {
    plan_memory(components, free, "cuda:1");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kResource);
    return e.what();
  }
  return "no error";
}

TEST(PipelineMemory, WhatFitsNowhereIsNamed) {
  EXPECT_THAT(
      refused(flux(), 20 * kGb),
      testing::AllOf(testing::HasSubstr("cuda:1 has 20.0 GB free, and the transformer alone"),
                     testing::HasSubstr("--device cpu")));
  EXPECT_THAT(refused({{"vae", kGb, 40 * kGb}}, 30 * kGb), testing::HasSubstr("a smaller --size"));
  EXPECT_THAT(refused({{"text_encoder_2", 10 * kGb, kGb}}, 8 * kGb),
              testing::HasSubstr("--text-encoder cpu"));
}

}  // namespace
}  // namespace braid
