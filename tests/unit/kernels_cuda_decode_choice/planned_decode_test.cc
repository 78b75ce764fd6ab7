// Decode steps of an absent GPU: the parts of launches add up to the form's price.
#include "braid/kernels/cuda/decode_choice/planned_decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/backend/null/null_backend.h"
#include "braid/base/error.h"
#include "braid/ops/attention_block.h"
#include "unit/parallel/decoder_program.h"

namespace braid::cuda {
namespace {

constexpr int64_t kKeys = 3000;

class PlannedDecodeTest : public testing::Test {
 protected:
  // Before rewrite(), of a token or as many sequences as tokens.
  static Program decoder_of(int64_t tokens) {
    const Program program =
        testing_decoder::decoder(tokens, 3, DType::bf16, tokens == 1 ? 2 : tokens);
    return fuse(fuse(program, fusions()), few_token_fusions());
  }
  double sum(const PlannedDecode& planned, const Program& program) const {
    double seconds = 0;
    for (const Op& op : program.ops) {
      const OwnPrice price = planned.price(program, op).value();
      seconds += price.fixed + price.memory;
    }
    return seconds;
  }

  const NullBackend backend_;
  const DecodeRates rates_ = absent_decode_rates("h100", 1);
};

TEST_F(PlannedDecodeTest, LaunchesApart) {
  for (const int64_t tokens : {1, 2}) {
    const PlannedDecode planned(backend_.catalog(), {}, rates_, kKeys);
    const Program program = planned.rewrite(decoder_of(tokens));
    ASSERT_TRUE(planned.form());
    EXPECT_EQ(planned.form()->kind, DecodeKind::apart);
    const auto step = describe_step(program, kKeys);
    ASSERT_TRUE(step);
    double price = -1;
    for (const DecodePrice& p : decode_prices(*step, {.clusters = rates_.clusters}, rates_)) {
      if (p.form.kind == DecodeKind::apart) price = p.seconds();
    }
    // The embedding, and rows on the way to the head, are launches beside those of layers.
    const double seam = step->norms_apart ? rates_.panel_seam : rates_.launch_seam;
    EXPECT_NEAR(sum(planned, program), price + 3 * seam, 1e-9) << tokens;
    EXPECT_THAT(planned.explain()[0], testing::HasSubstr("priced with 3000 keys"));
  }
}

// Prompts, and more than a decode step, have no form.
TEST_F(PlannedDecodeTest, OfPromptsIsThatOfTheProfile) {
  const PlannedDecode planned(backend_.catalog(), {.kind = DecodeKind::relay}, rates_, kKeys);
  const Program program =
      planned.rewrite(fuse(testing_decoder::decoder(64, 2, DType::bf16), fusions()));
  EXPECT_FALSE(planned.form());
  EXPECT_FALSE(planned.price(program, program.ops[0]));
  EXPECT_TRUE(planned.explain().empty());
}

TEST_F(PlannedDecodeTest, ForcedFormsSayWhyNot) {
  const PlannedDecode planned(backend_.catalog(), {.kind = DecodeKind::fused}, rates_, kKeys);
  try {
    planned.rewrite(decoder_of(1));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(e.what(), testing::HasSubstr("head dim 16: 64 or 128"));
  }
}

}  // namespace
}  // namespace braid::cuda
