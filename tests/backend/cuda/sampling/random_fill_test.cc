#include "braid/kernels/cuda/sampling/device/random_fill.h"

#include <fmt/format.h>

#include <cmath>

#include "backend/cuda/sampling/device_testing.h"
#include "braid/base/error.h"
#include "braid/tensor/half.h"

namespace braid::cuda::test {
namespace {

// The same formula in f64, from the index alone.
double expected(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index / 2 + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  const double u = (static_cast<double>(z >> 40) + 1) * 0x1.0p-24;
  const double angle = M_PI * static_cast<double>(z & 0xffffff) * 0x1.0p-23;
  return std::sqrt(-2 * std::log(u)) * (index % 2 ? std::sin(angle) : std::cos(angle));
}

TEST(RandomFill, ValuesDependOnlyOnSeedAndIndex) {
  REQUIRE_DEVICE();
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const int64_t size = bytes_of(dtype, 1);
    const double eps = dtype == DType::f32 ? 1e-5 : dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
    for (const int64_t cols : {1, 7, 513, 5000}) {
      constexpr int64_t kRows = 5;
      const int64_t row_bytes = (cols + 3) * size;
      const DeviceArray<std::byte> memory(static_cast<size_t>(kRows * row_bytes));
      TensorView out{memory.data(), dtype, Shape{kRows, cols}, row_bytes};
      random_fill({.out = out, .first = 31, .index_stride = 9000, .seed = 77, .stddev = 0.5f}, {});
      const auto bytes = memory.get();
      for (int64_t i = 0; i < kRows; ++i) {
        const std::byte* row = bytes.data() + i * row_bytes;
        for (int64_t j = 0; j < cols + 3; ++j) {
          const std::byte* p = row + j * size;
          if (j >= cols) {
            ASSERT_EQ(*p, std::byte{0xa5}) << "between rows";
            continue;
          }
          float x;
          if (dtype == DType::f32) {
            std::memcpy(&x, p, 4);
          } else if (dtype == DType::f16) {
            f16 h;
            std::memcpy(&h, p, 2);
            x = to_float(h);
          } else {
            bf16 h;
            std::memcpy(&h, p, 2);
            x = to_float(h);
          }
          const double want = 0.5 * expected(77, static_cast<uint64_t>(31 + i * 9000 + j));
          ASSERT_NEAR(x, want, eps * std::abs(want) + 1e-6)
              << name(dtype) << " " << i << "," << j << " of " << cols;
        }
      }
    }
  }
}

TEST(RandomFill, IsNormal) {
  REQUIRE_DEVICE();
  constexpr int64_t kN = 1 << 20;
  const DeviceArray<float> memory(static_cast<size_t>(kN));
  random_fill(
      {.out = make_view(reinterpret_cast<std::byte*>(memory.data()), DType::f32, {kN}), .seed = 5},
      {});
  const auto values = memory.get();
  double sum = 0, squares = 0, neighbours = 0;
  int64_t inside = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double x = values[i];
    sum += x;
    squares += x * x;
    inside += std::abs(x) < 1;
    neighbours += i > 0 ? x * values[i - 1] : 0;
  }
  const double slack = 5 / std::sqrt(static_cast<double>(kN));  // five standard errors
  EXPECT_NEAR(sum / kN, 0, slack);
  EXPECT_NEAR(squares / kN, 1, 1.5 * slack);
  EXPECT_NEAR(neighbours / kN, 0, slack);
  EXPECT_NEAR(static_cast<double>(inside) / kN, 0.6827, slack);
}

TEST(RandomFill, OtherTypesAreRefused) {
  std::byte block[64];
  TensorView view = make_view(block, DType::q8_0, {32});
  EXPECT_THROW(random_fill({.out = view}, {}), Error);
}

}  // namespace
}  // namespace braid::cuda::test
