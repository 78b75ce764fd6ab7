#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/base/error.h"
#include "braid/kernels/cpu/linear/linear.h"
#include "braid/tensor/quant.h"

namespace braid::cpu::linear_test {

constexpr double kEps = 0x1p-24;  // of f32, to nearest
constexpr DType kDTypes[] = {DType::f32,  DType::f16,  DType::bf16, DType::q8_0,
                             DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
                             DType::q4_k, DType::q5_k, DType::q6_k};

// Bytes that end where an unreadable page begins: whoever reads behind them crashes.
class GuardedBytes {
 public:
  explicit GuardedBytes(int64_t size) : size_(size) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    const int64_t whole = round_up(size, page);
    mapped_ = whole + page;
    void* p = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    BRAID_CHECK(p != MAP_FAILED);
    base_ = static_cast<std::byte*>(p);
    BRAID_CHECK(mprotect(base_ + whole, page, PROT_NONE) == 0);
    data_ = base_ + whole - size;
  }
  ~GuardedBytes() { munmap(base_, mapped_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  std::byte* base_;
  std::byte* data_;
  int64_t size_, mapped_;
};

// Random blocks of a dtype: every bit pattern of codes and scales, factors of sane size.
inline void fill_weight(DType dtype, std::byte* row, int64_t elems, std::mt19937& rng) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  if (!is_quantized(dtype)) {
    std::vector<float> values(elems);
    for (float& v : values) v = uniform(rng);
    quantize_row(dtype, values.data(), row, elems);
    return;
  }
  const DTypeInfo& type = info(dtype);
  for (int64_t block = 0; block < elems / type.block_elems; ++block) {
    std::byte* p = row + block * type.block_bytes;
    for (int i = 0; i < type.block_bytes; ++i) p[i] = static_cast<std::byte>(rng());
    const auto put = [&](int offset, float x) {
      const f16 half = to_f16(x);
      std::memcpy(p + offset, &half, sizeof(half));
    };
    put(dtype == DType::q6_k ? 208 : 0, 0.02f * uniform(rng));
    if (dtype == DType::q4_1 || dtype == DType::q5_1 || dtype == DType::q4_k ||
        dtype == DType::q5_k) {
      put(2, 0.2f * uniform(rng));
    }
  }
}

// The part of each element that does not depend on its code: the block with all codes zero.
inline std::vector<float> minima(DType dtype, const std::byte* row, int64_t elems) {
  std::vector<float> out(elems, 0);
  int first = 0;
  if (dtype == DType::q4_1 || dtype == DType::q5_1) first = 4;
  if (dtype == DType::q4_k || dtype == DType::q5_k) first = 16;
  if (first == 0) return out;
  std::vector<std::byte> copy(row, row + bytes_of(dtype, elems));
  const int bytes = info(dtype).block_bytes;
  for (size_t b = 0; b < copy.size(); b += bytes) {
    std::fill(copy.begin() + b + first, copy.begin() + b + bytes, std::byte{0});
  }
  dequantize_row(dtype, copy.data(), out.data(), elems);
  return out;
}

// x as the kernels of quantized weights see it, and its step per element.
constexpr float kMaxCode = 32512;
inline void round_to_codes(const float* x, int64_t K, std::vector<double>* values,
                           std::vector<double>* steps) {
  values->resize(K);
  steps->resize(K);
  for (int64_t k = 0; k < K; k += 32) {
    float max = 0;
    for (int i = 0; i < 32; ++i) max = std::max(max, std::abs(x[k + i]));
    if (max < 1e-33f) max = 0;
    const float scale = max * (1 / kMaxCode), inverse = max == 0 ? 0 : kMaxCode / max;
    for (int i = 0; i < 32; ++i) {
      (*values)[k + i] = static_cast<double>(scale) * std::nearbyint(x[k + i] * inverse);
      (*steps)[k + i] = scale;
    }
  }
}

// One weight with its bytes: columns [left, left + K) of rows that are wider, if asked.
struct TestWeight {
  TestWeight(DType dtype, int64_t N, int64_t K, bool sliced, std::mt19937& rng)
      : bytes(N * bytes_of(dtype, wide(dtype, K, sliced)) - slack(dtype, sliced)) {
    const int64_t block = info(dtype).block_elems;
    const int64_t row = bytes_of(dtype, wide(dtype, K, sliced));
    const int64_t left = sliced ? bytes_of(dtype, block) : 0;
    for (int64_t n = 0; n < N; ++n) {
      // The bytes right of the slice are left out after the last row.
      std::byte* p = bytes.data() + n * row;
      if (sliced) std::memset(p, 0xff, left);
      fill_weight(dtype, p + left, K, rng);
      if (sliced && n + 1 < N) std::memset(p + row - left, 0xff, left);
    }
    view = {bytes.data() + left, dtype, {N, K}, row};
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t n = 0; n < N; ++n) bias.push_back(uniform(rng));
  }
  static int64_t wide(DType dtype, int64_t K, bool sliced) {
    return K + (sliced ? 2 * info(dtype).block_elems : 0);
  }
  static int64_t slack(DType dtype, bool sliced) {
    return sliced ? bytes_of(dtype, info(dtype).block_elems) : 0;
  }

  GuardedBytes bytes;
  TensorView view;
  std::vector<float> bias;
};

// What y[t, n] has to be: over x as the kernel sees it, with a bound on the error of f32 sums, and
// over x itself, with the bound that rounding x to 16 bits adds.
struct Expected {
  double value, bound;              // over rounded x
  double exact_value, exact_bound;  // over x
};

// [M][N] without gate and residual.
inline std::vector<Expected> reference(const float* x, int64_t ldx, int64_t M, const TensorView& w,
                                       const float* bias) {
  const int64_t N = w.rows(), K = w.cols();
  const bool codes = is_quantized(w.dtype);
  std::vector<Expected> out(M * N);
  std::vector<double> rounded(K), steps(K, 0);
  std::vector<std::vector<float>> weights(N), zeros(N);
  for (int64_t n = 0; n < N; ++n) {
    weights[n].resize(K);
    dequantize_row(w.dtype, w.row(n), weights[n].data(), K);
    zeros[n] = minima(w.dtype, w.row(n), K);
  }
  for (int64_t t = 0; t < M; ++t) {
    const float* xt = x + t * ldx;
    if (codes) {
      round_to_codes(xt, K, &rounded, &steps);
    } else {
      rounded.assign(xt, xt + K);
    }
    for (int64_t n = 0; n < N; ++n) {
      double sum = 0, exact = 0, magnitude = 0, rounding = 0;
      for (int64_t k = 0; k < K; ++k) {
        const double wk = weights[n][k], zero = zeros[n][k];
        sum += wk * rounded[k];
        exact += wk * xt[k];
        magnitude += (std::abs(wk - zero) + std::abs(zero)) * std::abs(rounded[k]);
        rounding += std::abs(wk) * steps[k] * (0.5 + kMaxCode * 4 * kEps);
      }
      // One rounding per addition, and some per term: of the scales' product, of the reference's
      // weight, of the sum of codes.
      const double additions = codes ? 2.0 * static_cast<double>(K) / 16 : static_cast<double>(K);
      const double b = bias ? bias[n] : 0;
      const double bound = (additions + 8) * kEps * (magnitude + std::abs(b));
      out[t * N + n] = {sum + b, bound, exact + b, bound + rounding};
    }
  }
  return out;
}

// act(gate) * up, errors carried along; the slopes of silu and gelu stay below 1.13.
inline double activate(Gate gate, double x) {
  if (gate == Gate::silu) return x / (1 + std::exp(-x));
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(u));
}
inline Expected gated(Gate gate, const Expected& g, const Expected& u) {
  const auto bound = [&](double gv, double gb, double uv, double ub) {
    const double rounding = 32 * kEps * (1 + std::abs(gv)) * std::abs(uv);
    return 1.13 * gb * (std::abs(uv) + ub) + std::abs(activate(gate, gv)) * ub + rounding;
  };
  return {activate(gate, g.value) * u.value, bound(g.value, g.bound, u.value, u.bound),
          activate(gate, g.exact_value) * u.exact_value,
          bound(g.exact_value, g.exact_bound, u.exact_value, u.exact_bound)};
}

// Calls fn(team) on `count` threads at once.
template <class Fn>
void run_team(int count, Fn fn) {
  ThreadPool(count, 64).run(fn);  // the tests themselves run side by side
}

inline std::vector<LinearDesc::Weight> describe(const LinearParams& params) {
  std::vector<LinearDesc::Weight> out;
  for (const LinearWeight& w : params.weights) out.push_back({w.w.dtype, w.w.rows()});
  return out;
}

// Runs with a poisoned scratch of exactly the size asked for, which must not be overrun.
inline void run_linear(const LinearParams& params, LinearIsa isa, int threads) {
  const std::vector<LinearDesc::Weight> weights = describe(params);
  const LinearDesc desc{
      .M = params.M, .K = params.K, .weights = weights, .gate = params.gate, .threads = threads};
  const LinearConfig config = choose_linear(desc, isa);
  const int64_t size = linear_scratch_bytes(desc, isa);
  constexpr int64_t kGuard = 256;
  std::vector<std::byte> buffer(size + 64 + kGuard, std::byte{0xff});
  std::byte* scratch = buffer.data() + (-reinterpret_cast<uintptr_t>(buffer.data()) & 63);
  run_team(threads, [&](const Team& team) { linear(params, config, scratch, team); });
  for (int64_t i = 0; i < kGuard - 64; ++i) {
    ASSERT_EQ(scratch[size + i], std::byte{0xff}) << "scratch overrun at +" << i;
  }
}

inline std::vector<float> random_floats(int64_t n, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (float& v : out) v = normal(rng);
  return out;
}

}  // namespace braid::cpu::linear_test
