#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/kernels/cpu/isa.h"
#include "braid/tensor/dtype.h"
#include "braid/tensor/quant.h"

namespace braid::cpu::testing {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr double kEps = std::numeric_limits<float>::epsilon() / 2;  // of one rounding

// Calls fn(const Team&) on `threads` threads.
template <class F>
void on_team(int threads, F&& fn) {
  ThreadPool pool(threads, 64);  // the tests themselves run side by side
  pool.run(fn);
}

// For kernels without barriers: on every Isa of the machine and teams of 1 to 4 calls before(),
// then fn(team, isa) for one index after the other, then after().
template <class Before, class Fn, class After>
void sweep_teams(Before&& before, Fn&& fn, After&& after) {
  for (Isa isa : usable_isas()) {
    for (int threads : {1, 2, 3, 4}) {
      SCOPED_TRACE(::testing::Message() << name(isa) << ", " << threads << " threads");
      before();
      for (int i = 0; i < threads; ++i) fn(Team{i, threads, nullptr}, isa);
      after();
    }
  }
}

// Outputs start as NaN, so that an element that no kernel writes is seen.
inline std::vector<float> poisoned(int64_t n) {
  return std::vector<float>(static_cast<size_t>(n), kNaN);
}

inline std::vector<float> random_floats(std::mt19937& random, int64_t n, float spread = 1.0f) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// The largest of (|got - want| / tolerance), NaN counting as infinite; > 1 is wrong.
struct Worst {
  double ratio = 0;
  int64_t index = -1;
  double got = 0, want = 0, tolerance = 0;

  void see(int64_t i, double g, double w, double tol) {
    double r = g == w ? 0 : std::abs(g - w) / tol;
    if (std::isnan(r)) r = std::numeric_limits<double>::infinity();
    if (index >= 0 && r <= ratio) return;
    *this = {r, i, g, w, tol};
  }
};

inline void expect_close(const Worst& worst) {
  EXPECT_LE(worst.ratio, 1) << "at " << worst.index << ": got " << worst.got << ", want "
                            << worst.want << ", tolerance " << worst.tolerance;
}

}  // namespace braid::cpu::testing
