#include "backend/cpu/kernel_testing.h"
#include "braid/kernels/cpu/pointwise/elementwise.h"

namespace braid::cpu {
namespace {

using namespace testing;

struct Function {
  const char* name;
  void (*kernel)(const BinaryParams&, const Team&, Isa);
  double (*reference)(double a, double b);
  double ulps;  // of the result; GELU adds the error of its argument to the exponent
};

const Function kFunctions[] = {
    {"add", add, [](double a, double b) { return a + b; }, 1},
    {"silu_mul", silu_mul, [](double a, double b) { return a / (1 + std::exp(-a)) * b; }, 8},
    {"gelu_tanh_mul", gelu_tanh_mul,
     [](double a, double b) {
       const double u = std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a);
       return a / (1 + std::exp(-2 * u)) * b;
     },
     8},
};

// The argument of the exponential carries a relative error of a few roundings, which e^x turns into
// |x| times as many.
double tolerance(const Function& f, double a, double want) {
  const double exponent = std::abs(a) + std::abs(0.08 * a * a * a);
  return std::abs(want) * kEps * (f.ulps + (f.ulps > 1 ? 4 * exponent : 0)) + 1e-30;
}

TEST(Elementwise, MatchesF64) {
  std::mt19937 random(10);
  for (const Function& f : kFunctions) {
    for (int64_t cols : {1, 7, 16, 255, 256, 257, 1000, 1536}) {
      for (int64_t rows : {1, 3}) {
        SCOPED_TRACE(::testing::Message() << f.name << " " << rows << " x " << cols);
        const int64_t stride = cols + 5;
        const std::vector<float> a = random_floats(random, rows * stride, 3);
        const std::vector<float> b = random_floats(random, rows * stride);
        std::vector<float> y;
        sweep_teams([&] { y = poisoned(rows * stride); },
                    [&](const Team& team, Isa isa) {
                      f.kernel({a.data(), b.data(), y.data(), rows, cols, stride, stride, stride},
                               team, isa);
                    },
                    [&] {
                      Worst worst;
                      for (int64_t t = 0; t < rows; ++t) {
                        for (int64_t i = t * stride; i < t * stride + cols; ++i) {
                          const double want = f.reference(a[i], b[i]);
                          worst.see(i, y[i], want, tolerance(f, a[i], want));
                        }
                        for (int64_t i = cols; i < stride; ++i) {
                          ASSERT_TRUE(std::isnan(y[t * stride + i])) << "wrote past a row";
                        }
                      }
                      expect_close(worst);
                    });
      }
    }
  }
}

// The whole range of gates: far out the gate is the identity or vanishes, and nothing overflows.
TEST(Elementwise, GatesFarOut) {
  std::vector<float> a, b;
  for (float x = -300; x <= 300; x += 0.37f) a.push_back(x);
  b.assign(a.size(), 1.0f);
  const auto n = static_cast<int64_t>(a.size());
  for (const Function& f : {kFunctions[1], kFunctions[2]}) {
    std::vector<float> y;
    sweep_teams([&] { y = poisoned(n); },
                [&](const Team& team, Isa isa) {
                  f.kernel({a.data(), b.data(), y.data(), 1, n, n, n, n}, team, isa);
                },
                [&] {
                  for (int64_t i = 0; i < n; ++i) {
                    const double want = f.reference(a[i], 1);
                    ASSERT_NEAR(y[i], want, tolerance(f, a[i], want) + 1e-34) << f.name << a[i];
                  }
                });
  }
}

TEST(Elementwise, InPlace) {
  std::mt19937 random(11);
  const std::vector<float> a = random_floats(random, 600);
  const std::vector<float> b = random_floats(random, 600);
  for (const Function& f : kFunctions) {
    for (Isa isa : usable_isas()) {
      std::vector<float> apart = poisoned(600), in_a = a, in_b = b;
      f.kernel({a.data(), b.data(), apart.data(), 1, 600, 600, 600, 600}, Team{}, isa);
      f.kernel({in_a.data(), b.data(), in_a.data(), 1, 600, 600, 600, 600}, Team{}, isa);
      f.kernel({a.data(), in_b.data(), in_b.data(), 1, 600, 600, 600, 600}, Team{}, isa);
      EXPECT_TRUE(same_bits(apart, in_a) && same_bits(apart, in_b)) << f.name;
    }
  }
}

}  // namespace
}  // namespace braid::cpu
