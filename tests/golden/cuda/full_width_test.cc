// Components of full width on a GPU beside diffusers and transformers: in f32 as closely as the
// CPU, in bf16 no further from f32 than diffusers' own bf16 on a GPU.
#include <gtest/gtest.h>

#include "braid/engine/world.h"
#include "golden/diffusion/full_width.h"

namespace braid::golden {
namespace {

class FullWidthOnGpu : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (usable_gpus() == 0) GTEST_SKIP() << "no GPU";
  }
};

TEST_P(FullWidthOnGpu, ResultsInF32) {
  const FullWidthError error = full_width_error(GetParam(), {.cuda = true}, DType::f32);
  RecordProperty("error", fmt::format("{:.2e}", error.braid));
  EXPECT_LT(error.braid, 1e-4);
}

TEST_P(FullWidthOnGpu, ResultsInBf16) {
  const FullWidthError error = full_width_error(GetParam(), {.cuda = true}, DType::bf16);
  RecordProperty("error", fmt::format("{:.2e}", error.braid));
  RecordProperty("error_over_diffusers", fmt::format("{:.3f}", error.braid / error.diffusers_bf16));
  EXPECT_LE(error.braid, error.diffusers_bf16);
}

INSTANTIATE_TEST_SUITE_P(Components, FullWidthOnGpu, testing::ValuesIn(full_width_components()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace braid::golden
