#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

namespace braid {

// Least squares over samples of N numbers, with coefficients of at least 0.
template <size_t N>
class NonNegativeFit {
 public:
  using Numbers = std::array<double, N>;

  NonNegativeFit() = default;
  // `keep`: weight of all earlier samples, with each further sample.
  explicit NonNegativeFit(double keep) : keep_(keep) {}

  void add(const Numbers& x, double y) {
    for (size_t i = 0; i < N; ++i) {
      for (size_t j = 0; j < N; ++j) products_[i][j] = keep_ * products_[i][j] + x[i] * x[j];
      answers_[i] = keep_ * answers_[i] + x[i] * y;
    }
  }

  // The coefficients; 0 for a number that no sample has. Tries all sets of numbers where the fit by
  // all numbers is negative somewhere: 2^N small systems.
  Numbers solve() const {
    constexpr uint32_t kAll = (1u << N) - 1;
    Numbers best{}, x;
    double least = std::numeric_limits<double>::infinity();
    for (uint32_t set = kAll; set > 0; --set) {
      if (!solve(set, x)) continue;
      bool negative = false;
      double error = 0;  // up to a constant
      for (size_t i = 0; i < N; ++i) {
        negative |= x[i] < 0;
        error -= 2 * x[i] * answers_[i];
        for (size_t j = 0; j < N; ++j) error += x[i] * x[j] * products_[i][j];
      }
      if (negative || error >= least) continue;
      least = error;
      best = x;
      if (set == kAll) break;
    }
    return best;
  }

 private:
  // The normal equations for the numbers of `set`, each scaled to 1; false if they have no
  // solution.
  bool solve(uint32_t set, Numbers& x) const {
    std::array<size_t, N> use{};
    size_t n = 0;
    for (size_t i = 0; i < N; ++i) {
      if ((set >> i & 1) != 0 && products_[i][i] > 0) use[n++] = i;
    }
    double m[N][N + 1] = {};
    const auto scale = [&](size_t i) { return std::sqrt(products_[use[i]][use[i]]); };
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) m[i][j] = products_[use[i]][use[j]] / (scale(i) * scale(j));
      m[i][i] += 1e-9;  // equal samples determine a sum, not its parts
      m[i][n] = answers_[use[i]] / scale(i);
    }
    for (size_t i = 0; i < n; ++i) {
      size_t pivot = i;
      for (size_t r = i + 1; r < n; ++r) {
        if (std::abs(m[r][i]) > std::abs(m[pivot][i])) pivot = r;
      }
      std::swap(m[i], m[pivot]);
      if (m[i][i] == 0) return false;
      for (size_t r = 0; r < n; ++r) {
        if (r == i) continue;
        const double factor = m[r][i] / m[i][i];
        for (size_t c = i; c <= n; ++c) m[r][c] -= factor * m[i][c];
      }
    }
    x.fill(0);
    for (size_t i = 0; i < n; ++i) x[use[i]] = m[i][n] / m[i][i] / scale(i);
    return n > 0;
  }

  double keep_ = 1;
  double products_[N][N] = {};  // sums of x x^T
  Numbers answers_{};           // sums of x y
};

}  // namespace braid
