#include <gtest/gtest.h>

#include "backend/cuda/linear/skinny_case.h"
#include "braid/ops/linear.h"

namespace braid::cuda::test {
namespace {

#define REQUIRE_DEVICE() \
  if (!has_device()) GTEST_SKIP() << "no CUDA device"

// The chosen config, and fewer CTAs that have more rows each; twice for the same bits.
void check_all(const CaseSpec& spec) {
  prepare_stream_linear();
  Case c(spec);
  const StreamShape shape = stream_shape(c.params());
  ASSERT_TRUE(stream_takes(shape)) << to_string(spec);
  for (const int sms : {this_device().num_sms, 1}) {
    const StreamConfig config = choose_stream(shape, sms);
    SCOPED_TRACE(to_string(spec) + " as " + to_string(config));
    ASSERT_EQ(c.run(config), "");
    const auto once = c.result();
    ASSERT_EQ(c.run(config, true), "");
    ASSERT_TRUE(once == c.result()) << "two runs differ";
  }
}

TEST(StreamLinear, SweepOfShapes) {
  REQUIRE_DEVICE();
  for (const int k : {8, 64, 72, 248, 256, 264, 576, 1536, 4096, 11008}) {
    for (const std::vector<int>& n : {std::vector<int>{1}, {7}, {33, 5}, {192, 64, 64}, {1000}}) {
      for (const auto& [m, live] : {std::pair{1, -1}, {1, 1}, {2, 1}, {3, 2}, {4, 4}, {4, 1}}) {
        if (k == 11008 && m > 2) continue;
        CaseSpec spec{.n = n, .k = k, .m = m, .live = live};
        spec.seed = k + static_cast<int>(n.size()) * 7 + m;
        check_all(spec);
      }
    }
  }
}

TEST(StreamLinear, BiasesTypesAndStrides) {
  REQUIRE_DEVICE();
  for (const DType x : {DType::bf16, DType::f32}) {
    for (const DType y : {DType::bf16, DType::f32}) {
      check_all({.n = {65, 31},
                 .k = 320,
                 .m = 4,
                 .live = 3,
                 .bias = true,
                 .x_dtype = x,
                 .y_dtype = y,
                 .x_gap = 8,
                 .y_gap = 3,
                 .w_offset = 32,
                 .w_gap = 48});
    }
  }
}

TEST(StreamLinear, GateNormAndResidual) {
  REQUIRE_DEVICE();
  for (const ops::Activation activation : {ops::Activation::silu, ops::Activation::gelu_tanh}) {
    for (const int n : {1, 13, 512}) {
      check_all(
          {.n = {n, n}, .k = 576, .m = 2, .bias = true, .gated = true, .activation = activation});
      check_all({.n = {n, n},
                 .k = 1024,
                 .m = 3,
                 .live = 2,
                 .gated = true,
                 .activation = activation,
                 .normed = true,
                 .norm_b = true,
                 .norm_sum = true});
    }
  }
  for (const bool b : {false, true}) {
    check_all({.n = {96, 32, 32}, .k = 4096, .m = 1, .normed = true, .norm_b = b, .norm_sum = b});
  }
  check_all({.n = {129}, .k = 768, .m = 4, .live = 3, .y_dtype = DType::f32, .residual = true});
}

}  // namespace
}  // namespace braid::cuda::test
