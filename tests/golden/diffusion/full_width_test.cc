// Two blocks of each transformer at full width, decoders, T5 and CLIP beside diffusers and
// transformers with equal random weights.
#include <gtest/gtest.h>

#include "golden/diffusion/full_width.h"

namespace braid::golden {
namespace {

class FullWidthOnCpu : public testing::TestWithParam<std::string> {};

TEST_P(FullWidthOnCpu, ResultsInF32) {
  const FullWidthError error = full_width_error(GetParam(), {}, DType::f32);
  RecordProperty("error", fmt::format("{:.2e}", error.braid));
  EXPECT_LT(error.braid, 1e-4);
}

// Weights of a file in bf16: the CPU computes with them in f32.
TEST_P(FullWidthOnCpu, ResultsOfWeightsInBf16) {
  const FullWidthError error = full_width_error(GetParam(), {}, DType::bf16);
  RecordProperty("error", fmt::format("{:.2e}", error.braid));
  RecordProperty("error_over_diffusers", fmt::format("{:.3f}", error.braid / error.diffusers_bf16));
  EXPECT_LT(error.braid, error.diffusers_bf16);
}

INSTANTIATE_TEST_SUITE_P(Components, FullWidthOnCpu, testing::ValuesIn(full_width_components()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace braid::golden
