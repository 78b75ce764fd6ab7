#include "braid/kernels/cuda/experts/expert_config.h"

#include <gtest/gtest.h>

namespace braid::cuda {
namespace {

TEST(ExpertConfig, TheWorkHasCtasAndWarpsHaveSteps) {
  for (const int64_t E : {1, 8, 60, 128, 1024}) {
    for (const int64_t R : {1, 8, 64, 512, 65536}) {
      for (const int64_t n : {1, 24, 768, 14336}) {
        for (const int64_t k : {8, 64, 704, 2048, 14336}) {
          for (const bool gated : {false, true}) {
            const ExpertShape s = {
                .experts = E, .n = n, .k = k, .rows = R, .rows_of_one = R, .gated = gated};
            const ExpertConfig c = choose_experts_form(s, {});
            SCOPED_TRACE(to_string(c));
            EXPECT_TRUE(c.ways == 1 || c.ways == 2 || c.ways == 4 || c.ways == 8);
            EXPECT_GE(c.ctas, 1);
            EXPECT_LE(c.ctas, 2 * 132);
            if (c.form == ExpertForm::tiles) {
              EXPECT_TRUE(tiles_take(s, {}));
            } else if (c.ways > 1) {
              EXPECT_GE(k, 32 * c.ways) << "a warp without work";
            }
          }
        }
      }
    }
  }
}

TEST(ExpertConfig, TilesAreForManyRowsOfPlainWeightsOnHopper) {
  const ExpertShape prompt = {
      .experts = 8, .n = 14336, .k = 4096, .rows = 16384, .rows_of_one = 8192, .gated = true};
  EXPECT_EQ(choose_experts_form(prompt, {}).form, ExpertForm::tiles);
  EXPECT_EQ(to_string(choose_experts_form(prompt, {})), "tiles, 132 ctas");
  EXPECT_EQ(choose_experts_form(prompt, {.compute_capability = 80}).form, ExpertForm::stream);
  ExpertShape s = prompt;
  s.dtype = DType::q4_k;
  EXPECT_EQ(choose_experts_form(s, {}).form, ExpertForm::stream);
  s = prompt;
  s.aligned = false;
  EXPECT_EQ(choose_experts_form(s, {}).form, ExpertForm::stream);
  s = prompt;
  s.k = 4096 + 32;
  EXPECT_EQ(choose_experts_form(s, {}).form, ExpertForm::stream);
  s = prompt;
  s.rows = 2, s.rows_of_one = 1;  // a token of Mixtral
  EXPECT_EQ(to_string(choose_experts_form(s, {})), "stream k / 8, 264 ctas");
  s.k = 4096;
  EXPECT_EQ(to_string(choose_experts_form(s, {})), "stream k / 8, 264 ctas");
  s.rows = 8, s.rows_of_one = 4;
  EXPECT_EQ(choose_experts_form(s, {}).form, ExpertForm::tiles);
}

// What was the faster on an H100 (docs/log/components.md), by tokens.
TEST(ExpertConfig, TakesTheFormThatWasFaster) {
  struct Case {
    int64_t experts, top_k, n, k;
    bool gated;
    int64_t from;  // tokens with which tiles begin
  };
  for (const Case& c : {Case{128, 8, 768, 2048, true, 16},
                        {128, 8, 2048, 768, false, 16},
                        {64, 6, 1408, 2048, true, 16},
                        {8, 2, 14336, 4096, true, 4},
                        {8, 2, 4096, 14336, false, 16}}) {
    for (const int64_t tokens : {1, 2, 4, 8, 16, 32, 64, 256, 8192}) {
      const ExpertShape s = {.experts = c.experts,
                             .n = c.n,
                             .k = c.k,
                             .rows = tokens * c.top_k,
                             .rows_of_one = tokens,
                             .gated = c.gated};
      EXPECT_EQ(choose_experts_form(s, {}).form == ExpertForm::tiles, tokens >= c.from)
          << c.experts << " experts, " << tokens << " tokens";
    }
  }
}

}  // namespace
}  // namespace braid::cuda
