// What linear() promises bit for bit, and how it treats numbers that are none.

#include <limits>

#include "backend/cpu/linear_case.h"

namespace braid::cpu::linear_test {
namespace {

std::vector<float> run(const std::vector<float>& x, int64_t M, const TensorView& w, LinearIsa isa,
                       int threads, float poison = -1) {
  std::vector<float> y(M * w.rows(), poison);
  const LinearWeight weight{.w = w, .y = y.data(), .ldy = w.rows()};
  run_linear({.x = x.data(), .ldx = w.cols(), .M = M, .K = w.cols(), .weights = {&weight, 1}}, isa,
             threads);
  return y;
}

class LinearExactnessTest : public testing::TestWithParam<DType> {
 protected:
  std::mt19937 rng{99};
  const int64_t K = 5 * std::max(info(GetParam()).block_elems, 7);
  TestWeight weight{GetParam(), 75, K, false, rng};
};

TEST_P(LinearExactnessTest, TeamSizeChangesNoBit) {
  for (int64_t M : {1, 4, 50}) {
    const std::vector<float> x = random_floats(M * K, rng);
    for (LinearIsa isa : usable_linear_isas()) {
      const std::vector<float> one = run(x, M, weight.view, isa, 1);
      for (int threads = 2; threads <= 4; ++threads) {
        EXPECT_EQ(one, run(x, M, weight.view, isa, threads)) << name(isa) << " M " << M;
      }
    }
  }
}

TEST_P(LinearExactnessTest, RowsOfAWeightDependOnNoOthers) {
  const int64_t M = 10;
  const std::vector<float> x = random_floats(M * K, rng);
  for (LinearIsa isa : usable_linear_isas()) {
    const std::vector<float> all = run(x, M, weight.view, isa, 1);
    for (const auto& [begin, end] : {std::pair{0, 1}, {3, 20}, {17, 75}, {74, 75}}) {
      const std::vector<float> part = run(x, M, slice_rows(weight.view, begin, end), isa, 1);
      for (int64_t t = 0; t < M; ++t) {
        for (int64_t n = begin; n < end; ++n) {
          ASSERT_EQ(part[t * (end - begin) + n - begin], all[t * 75 + n]) << name(isa);
        }
      }
    }
  }
}

TEST_P(LinearExactnessTest, RowsOfXDependOnNoOthers) {
  const int64_t M = 31;  // by panels; one and five rows alone by the stream path
  const std::vector<float> x = random_floats(M * K, rng);
  for (LinearIsa isa : usable_linear_isas()) {
    const std::vector<float> all = run(x, M, weight.view, isa, 1);
    for (const auto& [begin, count] : {std::pair{0, 1}, {30, 1}, {2, 5}, {11, 20}}) {
      const std::vector<float> part(x.begin() + begin * K, x.begin() + (begin + count) * K);
      const std::vector<float> y = run(part, count, weight.view, isa, 1);
      for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], all[begin * 75 + i]) << name(isa);
    }
  }
}

TEST_P(LinearExactnessTest, MachinesWithFmaAgree) {
  for (int64_t M : {1, 3, 40}) {
    const std::vector<float> x = random_floats(M * K, rng);
    const std::vector<float> best = run(x, M, weight.view, usable_linear_isas().back(), 1);
    for (LinearIsa isa : usable_linear_isas()) {
      if (isa == LinearIsa::baseline) continue;
      EXPECT_EQ(best, run(x, M, weight.view, isa, 1)) << name(isa);
    }
  }
}

TEST_P(LinearExactnessTest, NanStaysInItsRow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, -nan, inf, -inf}) {
    for (int64_t M : {3, 20}) {
      std::vector<float> x = random_floats(M * K, rng);
      const int64_t row = M / 2;
      for (LinearIsa isa : usable_linear_isas()) {
        const std::vector<float> clean = run(x, M, weight.view, isa, 1);
        std::vector<float> dirty_x = x;
        dirty_x[row * K + K - 1] = bad;
        const std::vector<float> dirty = run(dirty_x, M, weight.view, isa, 2);
        for (int64_t t = 0; t < M; ++t) {
          for (int64_t n = 0; n < 75; ++n) {
            if (t == row) {
              ASSERT_FALSE(std::isfinite(dirty[t * 75 + n])) << name(isa) << " of " << bad;
            } else {
              ASSERT_EQ(dirty[t * 75 + n], clean[t * 75 + n]);
            }
          }
        }
      }
    }
  }
}

TEST_P(LinearExactnessTest, TinyAndHugeActivations) {
  for (const float size : {1e-44f, 1e-37f, 1e-30f, 1e30f}) {
    std::vector<float> x = random_floats(2 * K, rng);
    for (float& v : x) v *= size;
    const std::vector<Expected> want = reference(x.data(), K, 2, weight.view, nullptr);
    for (LinearIsa isa : usable_linear_isas()) {
      const std::vector<float> y = run(x, 2, weight.view, isa, 1);
      for (size_t i = 0; i < y.size(); ++i) {
        // Below 1e-35 a block of x may count as zero.
        const double slack = size < 1e-34f ? 1e-33 : 0;
        ASSERT_LE(std::abs(y[i] - want[i].exact_value), want[i].exact_bound + slack)
            << name(isa) << " size " << size;
      }
    }
  }
}

// The largest products that codes can make, with every sign: no step of any machine's product may
// saturate or overflow.
TEST_P(LinearExactnessTest, ExtremeCodes) {
  if (!is_quantized(GetParam())) return;
  const DTypeInfo& type = info(GetParam());
  const int64_t M = 12;
  int64_t factors = 2;  // bytes, kept random: the first of a block, of Q6_K the last
  if (GetParam() == DType::q4_1 || GetParam() == DType::q5_1) factors = 4;
  if (type.block_elems == 256) factors = GetParam() == DType::q6_k ? 18 : 16;
  const std::byte extremes[] = {std::byte{0x00}, std::byte{0x7f}, std::byte{0x80}, std::byte{0xff}};
  for (int64_t n = 0; n < 75; ++n) {
    for (int64_t b = 0; b < K / type.block_elems; ++b) {
      std::byte* block = weight.bytes.data() + n * weight.view.row_bytes + b * type.block_bytes;
      std::byte* codes = block + (GetParam() == DType::q6_k ? 0 : factors);
      for (int64_t i = 0; i < type.block_bytes - factors; ++i) {
        codes[i] = extremes[n < 4 ? n : static_cast<int64_t>(rng() % 4)];
      }
    }
  }
  std::vector<float> x(M * K);
  for (int64_t i = 0; i < M * K; ++i)
    x[i] = i / K < 2 ? (i < K ? 3.0f : -3.0f) : rng() % 2 ? 3 : -3;
  const std::vector<Expected> want = reference(x.data(), K, M, weight.view, nullptr);
  for (LinearIsa isa : usable_linear_isas()) {
    for (int64_t rows : {int64_t{2}, M}) {
      const std::vector<float> y = run(x, rows, weight.view, isa, 1);
      for (size_t i = 0; i < y.size(); ++i) {
        ASSERT_LE(std::abs(y[i] - want[i].value), want[i].bound) << name(isa) << " at " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllDTypes, LinearExactnessTest, testing::ValuesIn(kDTypes),
                         [](const auto& dtype) { return std::string(name(dtype.param)); });

// Each of the codes that x is rounded to, by weights that are one code in one column: what comes
// out is that code. 1, and the ends of the weights' range.
TEST(LinearCodesTest, EveryCodeOfX) {
  const int64_t max = static_cast<int64_t>(kMaxCode), M = ceil_div(2 * max + 1, int64_t{31});
  constexpr int kWeights[] = {1, 127, -128};
  GuardedBytes bytes(96 * bytes_of(DType::q8_0, 32));
  const TensorView w = make_view(bytes.data(), DType::q8_0, {96, 32});
  for (int64_t n = 0; n < 96; ++n) {
    BlockQ8_0 block{.d = to_f16(1)};
    block.qs[n % 32] = static_cast<int8_t>(kWeights[n / 32]);
    std::memcpy(bytes.data() + n * static_cast<int64_t>(sizeof(block)), &block, sizeof(block));
  }
  std::vector<float> x(M * 32);
  for (int64_t t = 0, code = -max; t < M; ++t) {
    for (int64_t i = 0; i < 32; ++i) {
      x[t * 32 + i] = static_cast<float>(i == t % 32 ? max : std::min(code++, max));
    }
  }
  for (LinearIsa isa : usable_linear_isas()) {
    const std::vector<float> y = run(x, M, w, isa, 1);
    for (int64_t i = 0; i < M * 96; ++i) {
      const double want = x[i / 96 * 32 + i % 32] * static_cast<double>(kWeights[i % 96 / 32]);
      ASSERT_LE(std::abs(y[i] - want), 4 * kEps * std::abs(want)) << name(isa) << " at " << i;
    }
  }
}

// Residual and y may be the same memory.
TEST(LinearAliasTest, ResidualInPlace) {
  std::mt19937 rng(3);
  TestWeight weight(DType::q4_1, 70, 96, false, rng);
  for (int64_t M : {1, 20}) {
    const std::vector<float> x = random_floats(M * 96, rng), r = random_floats(M * 70, rng);
    for (LinearIsa isa : usable_linear_isas()) {
      std::vector<float> apart(M * 70), in_place = r;
      for (std::vector<float>* y : {&apart, &in_place}) {
        const LinearWeight w{.w = weight.view, .y = y->data(), .ldy = 70};
        run_linear({.x = x.data(),
                    .ldx = 96,
                    .M = M,
                    .K = 96,
                    .weights = {&w, 1},
                    .residual = y == &apart ? r.data() : y->data(),
                    .ld_residual = 70},
                   isa, 2);
      }
      EXPECT_EQ(apart, in_place) << name(isa);
    }
  }
}

}  // namespace
}  // namespace braid::cpu::linear_test
