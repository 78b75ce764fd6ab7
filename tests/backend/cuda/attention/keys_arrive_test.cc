#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backend/cuda/attention/attention_case.h"
#include "braid/base/error.h"

namespace braid::cuda::test {
namespace {

CaseSpec in_stages(Dims d, DType dtype, bool causal) {
  CaseSpec spec;
  spec.desc = make_desc(d.qk, d.v, 24, 8, dtype, 2);
  if (causal) spec.desc.window_right = 0;
  spec.q_lengths = {130, 400, 200};  // more tiles than SMs
  spec.q_offsets = {600, 0, 400};
  spec.q_stages = {0, 2, 1};
  spec.q_early = {0, 1, 0};
  spec.kv_lengths = {170, 80, 0, 210, 50, 220};
  spec.kv_stages = {0, 0, 1, 2, 2, 3};
  spec.seed = static_cast<uint64_t>(d.qk + 1000 * causal);
  return spec;
}

// Whatever time keys and queries take to arrive, the result is the same, and right.
class KeysArriveOf : public testing::TestWithParam<Dims> {};
INSTANTIATE_TEST_SUITE_P(Dims, KeysArriveOf, testing::ValuesIn(kDims));

TEST_P(KeysArriveOf, AtAnyTime) {
  REQUIRE_DEVICE();
  if (attention_device().compute_capability != 90) GTEST_SKIP() << "keys arrive on Hopper";
  for (DType dtype : {DType::bf16, DType::f16}) {
    for (bool causal : {false, true}) {
      Case c(in_stages(GetParam(), dtype, causal));
      for (const AttentionConfig& config :
           candidates(c.desc(), c.device_params(), attention_device())) {
        std::vector<uint8_t> first;
        for (uint64_t seed = 1; seed <= 6; ++seed) {
          SCOPED_TRACE(
              fmt::format("{} as {}, seed {}", to_string(c.desc()), to_string(config), seed));
          ASSERT_EQ(c.run_arriving(config, seed), std::pair(0u, 0u));
          ASSERT_EQ(c.early_rows_missing(), 0);
          if (first.empty()) {
            ASSERT_EQ(c.check(16), "");
            first = c.result();
          }
          ASSERT_TRUE(first == c.result()) << "another result at another time";
        }
      }
    }
  }
}

// What would compute something else is refused, not launched.
TEST(KeysArrive, OtherKernelsRefuse) {
  REQUIRE_DEVICE();
  CaseSpec spec;
  spec.desc = make_desc(128, 128, 8, 8);
  spec.q_lengths = {64};
  spec.kv_lengths = {64, 64};
  Case there(spec);
  spec.kv_stages = {0, 1};
  Case arriving(spec);
  for (AttentionConfig config :
       candidates(there.desc(), there.device_params(), attention_device())) {
    EXPECT_THROW(arriving.run(config), Error) << to_string(config);
    if (config.kernel == AttentionKernel::kGeneric) continue;
    config.form = HopperForm::kArriving;
    EXPECT_THROW(there.run(config), Error) << to_string(config);
  }
  spec.kv_stages = {};
  spec.desc.finalize = false;
  Case carrying(spec);
  for (const AttentionConfig& config :
       candidates(there.desc(), there.device_params(), attention_device())) {
    if (config.kernel == AttentionKernel::kGeneric) continue;
    EXPECT_THROW(carrying.run(config), Error) << to_string(config);
  }
}

// Keys that never come end the wait, and are told of.
TEST(KeysArrive, ThoseThatDoNotAreCounted) {
  REQUIRE_DEVICE();
  if (attention_device().compute_capability != 90) GTEST_SKIP() << "keys arrive on Hopper";
  CaseSpec spec;
  spec.desc = make_desc(128, 128, 8, 8);
  spec.q_lengths = {200};
  spec.kv_lengths = {200, 200};
  spec.kv_stages = {0, 1};
  Case c(spec);
  const AttentionConfig config = choose(c.desc(), c.device_params(), attention_device());
  EXPECT_GT(c.run_arriving(config, 1, true).second, 0u);
  EXPECT_EQ(c.run_arriving(config, 1), std::pair(0u, 0u));  // and the next call is right
  EXPECT_EQ(c.check(16), "");
}

}  // namespace
}  // namespace braid::cuda::test
