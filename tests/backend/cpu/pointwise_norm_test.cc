#include <algorithm>

#include "backend/cpu/kernel_testing.h"
#include "braid/kernels/cpu/pointwise/norm.h"

namespace braid::cpu {
namespace {

using namespace testing;

// Squares, their sum, the square root and two products: a few roundings, and one for each addition
// of a lane.
double tolerance(double y, int64_t n) {
  return std::abs(y) * (static_cast<double>(n) / 8 + 12) * kEps + 1e-30;
}

void check_row(const float* x, const float* w, const float* y, int64_t n, float eps, int64_t at,
               Worst& worst) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + eps);
  for (int64_t i = 0; i < n; ++i) {
    const double want = x[i] * scale * w[i];
    worst.see(at + i, y[i], want, tolerance(want, n));
  }
}

TEST(RmsNorm, MatchesF64) {
  std::mt19937 random(1);
  struct Case {
    int64_t rows, cols, group;
  };
  for (Case c : {Case{1, 1, 1},
                 {3, 7, 7},
                 {5, 576, 576},
                 {2, 577, 577},
                 {7, 4096, 4096},
                 {3, 9 * 64, 64},
                 {4, 5 * 80, 80},
                 {2, 3 * 72, 72},
                 {1, 15, 3}}) {
    SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.cols << " in groups of " << c.group);
    const int64_t stride = c.cols + 3;
    const std::vector<float> x = random_floats(random, c.rows * stride, 3);
    const std::vector<float> w = random_floats(random, c.group);
    std::vector<float> y;
    std::vector<float> first;
    sweep_teams([&] { y = poisoned(c.rows * stride); },
                [&](const Team& team, Isa isa) {
                  rms_norm({.x = x.data(),
                            .w = w.data(),
                            .y = y.data(),
                            .rows = c.rows,
                            .cols = c.cols,
                            .group = c.group,
                            .x_stride = stride,
                            .y_stride = stride,
                            .eps = 1e-5f},
                           team, isa);
                },
                [&] {
                  Worst worst;
                  for (int64_t t = 0; t < c.rows; ++t) {
                    for (int64_t g = 0; g < c.cols; g += c.group) {
                      const int64_t at = t * stride + g;
                      check_row(&x[at], w.data(), &y[at], c.group, 1e-5f, at, worst);
                    }
                    for (int64_t i = c.cols; i < stride; ++i) {
                      ASSERT_TRUE(std::isnan(y[t * stride + i])) << "wrote past a row";
                    }
                  }
                  expect_close(worst);
                });
  }
}

TEST(RmsNorm, InPlaceAndTinyAndHuge) {
  for (float magnitude : {1e-15f, 1.0f, 1e15f}) {
    std::mt19937 random(2);
    const std::vector<float> x = random_floats(random, 100, magnitude);
    const std::vector<float> w(100, 1.0f);
    std::vector<float> y;
    sweep_teams([&] { y = x; },
                [&](const Team& team, Isa isa) {
                  rms_norm({.x = y.data(),
                            .w = w.data(),
                            .y = y.data(),
                            .rows = 1,
                            .cols = 100,
                            .group = 100,
                            .x_stride = 100,
                            .y_stride = 100,
                            .eps = 1e-6f},
                           team, isa);
                },
                [&] {
                  Worst worst;
                  check_row(x.data(), w.data(), y.data(), 100, 1e-6f, 0, worst);
                  expect_close(worst);
                });
  }
}

TEST(AddRmsNorm, MatchesF64) {
  std::mt19937 random(3);
  for (int64_t cols : {1, 8, 33, 576, 1025}) {
    for (bool alias : {false, true}) {
      SCOPED_TRACE(::testing::Message() << cols << " columns, " << (alias ? "s is r" : "s apart"));
      constexpr int64_t kRows = 5;
      const std::vector<float> x = random_floats(random, kRows * (cols + 1));
      const std::vector<float> r = random_floats(random, kRows * (cols + 2));
      const std::vector<float> w = random_floats(random, cols);
      std::vector<float> s, y;
      sweep_teams(
          [&] {
            s = alias ? r : poisoned(kRows * (cols + 2));
            y = poisoned(kRows * cols);
          },
          [&](const Team& team, Isa isa) {
            add_rms_norm({.x = x.data(),
                          .r = alias ? s.data() : r.data(),
                          .w = w.data(),
                          .s = s.data(),
                          .y = y.data(),
                          .rows = kRows,
                          .cols = cols,
                          .x_stride = cols + 1,
                          .r_stride = cols + 2,
                          .s_stride = cols + 2,
                          .y_stride = cols,
                          .eps = 1e-5f},
                         team, isa);
          },
          [&] {
            Worst worst;
            for (int64_t t = 0; t < kRows; ++t) {
              for (int64_t i = 0; i < cols; ++i) {
                const float sum = x[t * (cols + 1) + i] + r[t * (cols + 2) + i];
                ASSERT_EQ(s[t * (cols + 2) + i], sum);
              }
              check_row(&s[t * (cols + 2)], w.data(), &y[t * cols], cols, 1e-5f, t * cols, worst);
            }
            expect_close(worst);
          });
    }
  }
}

}  // namespace
}  // namespace braid::cpu
