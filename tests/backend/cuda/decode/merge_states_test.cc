// The merge of several GPUs' states, and the packing of a call's parts, against the scalar
// references.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "backend/cuda/decode/decode_case.h"
#include "braid/kernels/cuda/decode/device/states.h"
#include "braid/program/op.h"
#include "braid/tensor/quant.h"

namespace braid::cuda::test {
namespace {

// `rows` states of D sums; rows with none(row) have no keys.
template <class F>
std::vector<float> random_states(unsigned seed, int64_t rows, int64_t D, const F& none) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> states;
  for (int64_t row = 0; row < rows; ++row) {
    const bool empty = none(row);
    for (int64_t d = 0; d < D; ++d) states.push_back(empty ? 0 : normal(rng));
    states.push_back(empty ? 0 : 1 + std::abs(normal(rng)));
    states.push_back(empty ? -INFINITY : 5 * normal(rng));
  }
  return states;
}

void check_merge(int parts, int64_t D) {
  SCOPED_TRACE(fmt::format("{} parts, head dim {}", parts, D));
  constexpr int64_t kRows = 5, kHeads = 3;
  std::vector<float> states = random_states(3, parts * kRows * kHeads, D, [](int64_t row) {
    return row % 4 == 1 || row / (kRows * kHeads) == 1 || row % (kRows * kHeads) == 2;
  });
  constexpr int64_t kOwn = 4, kAll = kRows + kOwn;  // with rows of the rank's own behind
  std::vector<float> own(states);
  own.resize(states.size() + static_cast<size_t>(kOwn * kHeads * (D + 2)), 1);
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (int64_t live : {0, 3, 5, 8, 9}) {
      const bool with_own = live > kRows || live == 3;
      const int64_t rows = with_own ? kAll : kRows;
      const size_t n = static_cast<size_t>(rows * kHeads * D);
      std::vector<std::byte> want(n * static_cast<size_t>(bytes_of(dtype, 1)), std::byte{0xff});
      const Shape shape{1, parts * kRows, kHeads, D + 2}, out_shape{rows, kHeads * D};
      std::vector<TensorView> in = {
          make_view(reinterpret_cast<std::byte*>(states.data()), DType::f32, shape)};
      if (with_own) {
        in.push_back(
            make_view(const_cast<std::byte*>(reinterpret_cast<const std::byte*>(own.data())),
                      DType::f32, {1, parts * kRows + kOwn, kHeads, D + 2}));
      }
      const std::vector<TensorView> out = {make_view(want.data(), dtype, out_shape)};
      Op op;
      op.def = &ops::kMergeStates;
      op.attrs = Attrs::of(ops::MergeStatesAttrs{parts, dtype});
      BatchPart part{.begin = {}, .count = {.shard = live}};
      const OpCall call{&op, in, out, BatchAxis::shard, &part};
      ops::kMergeStates.reference(call);
      const DeviceBuffer<float> from(states), from_own(own);
      DeviceBuffer<std::byte> to(want.size());
      to.fill(0xff);
      const DeviceBuffer<int64_t> queries(std::vector<int64_t>{live});
      merge_states(
          {.states = make_view(reinterpret_cast<std::byte*>(from.data()), DType::f32, shape),
           .own = with_own ? from_own.data() + (parts - 1) * kRows * kHeads * (D + 2) : nullptr,
           .out = make_view(to.data(), dtype, out_shape),
           .queries = queries.data(),
           .parts = parts},
          {});
      const auto got = to.download();
      std::vector<float> a(n), b(n);
      dequantize_row(dtype, got.data(), a.data(), static_cast<int64_t>(n));
      dequantize_row(dtype, want.data(), b.data(), static_cast<int64_t>(n));
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(std::isnan(a[i]), std::isnan(b[i])) << i << " of " << live << " live rows";
        if (std::isnan(b[i])) continue;
        ASSERT_NEAR(a[i], b[i], dtype == DType::f32 ? 1e-5 : 2e-2) << i;
      }
    }
  }
}

// States of other bases, maxima or sums would not merge to what attention over all keys gives. Up
// to 8 parts are loaded together, and 128 columns.
TEST(States, Merge) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no CUDA device";
  for (int parts : {1, 3, 8, 9, 35}) {
    for (int64_t D : {40, 128, 200}) check_merge(parts, D);
  }
}

// Merged states are states: parts merged in two steps give what one step gives.
TEST(States, MergeToStates) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no CUDA device";
  constexpr int64_t kRows = 6, kHeads = 3, kD = 40, kWidth = kD + 2;
  constexpr size_t kPart = kRows * kHeads * kWidth;
  const std::vector<float> states = random_states(4, 4 * kRows * kHeads, kD, [](int64_t row) {
    return row % 3 == 1 || row % (kRows * kHeads) == 2;
  });
  const DeviceBuffer<float> from(states);
  DeviceBuffer<float> halves(2 * kPart), once(kRows * kHeads * kD), twice(kRows * kHeads * kD);
  halves.fill(0xff);
  const auto merge = [](float* of, int parts, float* to, bool finish) {
    const auto bytes = [](float* x) { return reinterpret_cast<std::byte*>(x); };
    merge_states({.states = make_view(bytes(of), DType::f32, {1, parts * kRows, kHeads, kWidth}),
                  .out = make_view(bytes(to), DType::f32, {kRows, kHeads * (finish ? kD : kWidth)}),
                  .parts = parts,
                  .finish = finish},
                 {});
  };
  auto* const first = const_cast<float*>(from.data());
  merge(first, 4, once.data(), true);
  merge(first, 3, halves.data(), false);
  merge(first + 3 * kPart, 1, halves.data() + kPart, false);
  merge(halves.data(), 2, twice.data(), true);
  const auto want = once.download(), got = twice.download(), merged = halves.download();
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5) << i;
  for (const int64_t row : {int64_t{2}, 2 + kRows * kHeads}) {  // without keys
    for (int64_t d = 0; d <= kD; ++d) EXPECT_EQ(merged[row * kWidth + d], 0) << row;
    EXPECT_EQ(merged[row * kWidth + kD + 1], -INFINITY);
  }
}

// The parts of a call's keys become one state; parts without keys hold anything.
TEST(States, Pack) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no CUDA device";
  constexpr int64_t kRows = 7, kHeads = 3;
  std::mt19937 rng(4);
  std::normal_distribution<float> normal;
  for (const int64_t D : {40, 128, 200}) {
    for (const int parts : {1, 3, 8, 19}) {
      SCOPED_TRACE(fmt::format("{} parts, head dim {}", parts, D));
      const int64_t rows = parts * kRows * kHeads;
      std::vector<float> sums, l, m;
      for (int64_t row = 0; row < rows; ++row) {
        const bool none = row % 4 == 1 || row % (kRows * kHeads) == 2;
        for (int64_t d = 0; d < D; ++d) sums.push_back(none ? std::nanf("") : normal(rng));
        l.push_back(none ? std::nanf("") : 1 + std::abs(normal(rng)));
        m.push_back(none ? -INFINITY : 5 * normal(rng));
      }
      const Shape sums_shape{1, parts * kRows, kHeads, D}, shape{1, parts * kRows, kHeads};
      const Shape out_shape{1, kRows, kHeads, D + 2};
      const auto view = [](std::vector<float>& values, const Shape& of) {
        return make_view(reinterpret_cast<std::byte*>(values.data()), DType::f32, of);
      };
      std::vector<float> want(static_cast<size_t>(out_shape.elems()), std::nanf(""));
      const std::vector<TensorView> in{view(sums, sums_shape), view(l, shape), view(m, shape)};
      const std::vector<TensorView> out{view(want, out_shape)};
      Op op;
      op.def = &ops::kPackStates;
      op.attrs = Attrs::of(ops::PackStatesAttrs{parts});
      BatchPart part{.begin = {}, .count = {.sequence = 1}};
      ops::kPackStates.reference({&op, in, out, BatchAxis::sequence, &part});
      DeviceBuffer<float> from(sums), from_l(l), from_m(m), to(want.size());
      to.fill(0xff);
      const auto on_device = [](DeviceBuffer<float>& buffer, const Shape& of) {
        return make_view(reinterpret_cast<std::byte*>(buffer.data()), DType::f32, of);
      };
      pack_states({.sums = on_device(from, sums_shape),
                   .l = from_l.data(),
                   .m = from_m.data(),
                   .out = on_device(to, out_shape),
                   .parts = parts},
                  {});
      const std::vector<float> got = to.download();
      for (size_t i = 0; i < want.size(); ++i) {
        if (std::isinf(want[i])) {
          ASSERT_EQ(got[i], want[i]) << i;
        } else {
          ASSERT_NEAR(got[i], want[i], 1e-5 * std::max(1.f, std::abs(want[i]))) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid::cuda::test
