#include <limits>

#include "backend/cpu/linear_case.h"

namespace braid::cpu::linear_test {
namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

struct Case {
  int64_t M, N, K;  // K in blocks of the dtype (floats: columns)
  int outputs = 1;  // weights without a gate
  Gate gate = Gate::none;
  bool sliced = false, bias = false, residual = false;
  int threads = 1;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "M " << c.M << " N " << c.N << " K " << c.K << " outputs " << c.outputs << " gate "
             << static_cast<int>(c.gate) << " sliced " << c.sliced << " bias " << c.bias
             << " residual " << c.residual << " threads " << c.threads;
}

void expect_close(const std::vector<float>& y, int64_t ldy, int64_t M, int64_t N,
                  const std::vector<Expected>& want) {
  for (int64_t t = 0; t < M; ++t) {
    for (int64_t n = 0; n < ldy; ++n) {
      const float got = y[t * ldy + n];
      if (n >= N) {
        ASSERT_TRUE(std::isnan(got)) << "wrote behind row " << t << " at " << n;
        continue;
      }
      const Expected& e = want[t * N + n];
      ASSERT_LE(std::abs(got - e.value), e.bound) << got << " at [" << t << ", " << n << "]";
      ASSERT_LE(std::abs(got - e.exact_value), e.exact_bound)
          << got << " at [" << t << ", " << n << "]";
    }
  }
}

void check(DType dtype, const Case& c, std::mt19937& rng) {
  const int64_t K = c.K * info(dtype).block_elems;
  const int64_t ldx = K + 3, ldy = c.N + 5;
  std::vector<float> x = random_floats(c.M * ldx, rng);
  for (int64_t i = 0; i < K && i < 32; ++i) x[i] = 0;  // a block of zeros
  const int count = c.gate == Gate::none ? c.outputs : 2;
  std::vector<std::unique_ptr<TestWeight>> weights;
  std::vector<std::vector<Expected>> want;
  for (int i = 0; i < count; ++i) {
    weights.push_back(std::make_unique<TestWeight>(dtype, c.N, K, c.sliced, rng));
    want.push_back(reference(x.data(), ldx, c.M, weights[i]->view,
                             c.bias ? weights[i]->bias.data() : nullptr));
  }
  if (c.gate != Gate::none) {
    for (size_t i = 0; i < want[0].size(); ++i) want[0][i] = gated(c.gate, want[0][i], want[1][i]);
    want.resize(1);
  }
  const std::vector<float> residual = random_floats(c.M * ldy, rng);
  if (c.residual) {
    for (int64_t t = 0; t < c.M; ++t) {
      for (int64_t n = 0; n < c.N; ++n) {
        Expected& e = want[0][t * c.N + n];
        const double r = residual[t * ldy + n];
        e.value += r;
        e.exact_value += r;
        e.bound += kEps * std::abs(e.value);
        e.exact_bound += kEps * std::abs(e.value);
      }
    }
  }
  for (LinearIsa isa : usable_linear_isas()) {
    SCOPED_TRACE(testing::Message() << name(dtype) << " " << name(isa) << " " << c);
    std::vector<std::vector<float>> y(count, std::vector<float>(c.M * ldy, kPoison));
    std::vector<LinearWeight> params;
    for (int i = 0; i < count; ++i) {
      params.push_back({.w = weights[i]->view,
                        .bias = c.bias ? weights[i]->bias.data() : nullptr,
                        .y = c.gate != Gate::none && i == 1 ? nullptr : y[i].data(),
                        .ldy = ldy});
    }
    run_linear({.x = x.data(),
                .ldx = ldx,
                .M = c.M,
                .K = K,
                .weights = params,
                .gate = c.gate,
                .residual = c.residual ? residual.data() : nullptr,
                .ld_residual = ldy},
               isa, c.threads);
    for (size_t i = 0; i < want.size(); ++i) {
      expect_close(y[i], ldy, c.M, c.N, want[i]);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

class LinearTest : public testing::TestWithParam<DType> {
 protected:
  std::mt19937 rng{1234};
};

TEST_P(LinearTest, FixedShapes) {
  const bool quantized = is_quantized(GetParam());
  for (int64_t M : {1, 2, 7, 8, 9, 25, 67}) {
    for (int64_t N : {1, 15, 16, 17, 33, 64, 97}) {
      check(GetParam(), {.M = M, .N = N, .K = quantized ? 2 : 37}, rng);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(LinearTest, LongRowsCrossTheUnpackedBlock) {
  const int64_t K = 4096 + 512 + (is_quantized(GetParam()) ? 0 : 5);
  check(GetParam(), {.M = 11, .N = 35, .K = K / info(GetParam()).block_elems}, rng);
  check(GetParam(), {.M = 1, .N = 35, .K = K / info(GetParam()).block_elems, .threads = 3}, rng);
  check(GetParam(), {.M = 61, .N = 35, .K = K / info(GetParam()).block_elems, .gate = Gate::silu},
        rng);
}

TEST_P(LinearTest, RandomCases) {
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng() % (high - low + 1));
  };
  const int64_t max_blocks = 800 / info(GetParam()).block_elems;
  for (int i = 0; i < 60; ++i) {
    Case c{.M = pick(0, 3) ? pick(1, 12) : pick(13, 67), .N = pick(1, 100), .K = 1};
    c.K = pick(0, 4) ? pick(1, std::min<int64_t>(max_blocks, 9)) : pick(1, max_blocks);
    c.sliced = pick(0, 1);
    c.bias = pick(0, 1);
    c.threads = static_cast<int>(pick(1, 4));
    switch (pick(0, 3)) {
      case 0:
        c.gate = pick(0, 1) ? Gate::silu : Gate::gelu_tanh;
        c.residual = pick(0, 1);
        break;
      case 1:
        c.outputs = static_cast<int>(pick(2, 4));
        break;
      default:
        c.residual = pick(0, 1);
    }
    check(GetParam(), c, rng);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(AllDTypes, LinearTest, testing::ValuesIn(kDTypes),
                         [](const auto& dtype) { return std::string(name(dtype.param)); });

// Weights of several dtypes over one x, as files with mixed quantization have them.
TEST(LinearMixedTest, DTypesShareX) {
  std::mt19937 rng(7);
  const int64_t K = 512;
  const DType dtypes[] = {DType::q4_k, DType::q6_k, DType::f16,
                          DType::q8_0, DType::q4_k, DType::f32};
  const int64_t N[] = {40, 7, 33, 16, 65, 21};
  for (int64_t M : {1, 5, 30}) {
    for (int gate = 0; gate < 2; ++gate) {
      const std::vector<float> x = random_floats(M * K, rng);
      std::vector<std::unique_ptr<TestWeight>> weights;
      std::vector<std::vector<Expected>> want;
      const int count = gate ? 2 : 6;
      for (int i = 0; i < count; ++i) {
        weights.push_back(std::make_unique<TestWeight>(gate && i ? DType::f32 : dtypes[i],
                                                       gate ? 50 : N[i], K, false, rng));
        want.push_back(reference(x.data(), K, M, weights[i]->view, nullptr));
      }
      if (gate) {
        for (size_t i = 0; i < want[0].size(); ++i) {
          want[0][i] = gated(Gate::silu, want[0][i], want[1][i]);
        }
        want.resize(1);
      }
      for (LinearIsa isa : usable_linear_isas()) {
        SCOPED_TRACE(testing::Message() << name(isa) << " M " << M << " gate " << gate);
        std::vector<std::vector<float>> y;
        std::vector<LinearWeight> params;
        for (int i = 0; i < count; ++i) {
          y.emplace_back(M * weights[i]->view.rows(), kPoison);
          params.push_back(
              {.w = weights[i]->view, .y = y[i].data(), .ldy = weights[i]->view.rows()});
        }
        run_linear({.x = x.data(),
                    .ldx = K,
                    .M = M,
                    .K = K,
                    .weights = params,
                    .gate = gate ? Gate::silu : Gate::none},
                   isa, 2);
        for (size_t i = 0; i < want.size(); ++i) {
          const int64_t n = weights[i]->view.rows();
          expect_close(y[i], n, M, n, want[i]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid::cpu::linear_test
