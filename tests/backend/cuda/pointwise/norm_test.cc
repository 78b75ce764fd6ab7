#include "braid/kernels/cuda/pointwise/device/norm.h"

#include "backend/cuda/pointwise/tensor.h"
#include "braid/base/error.h"
#include "braid/ops/norm.h"

namespace braid::cuda::test {
namespace {

struct Spec {
  int64_t rows = 1, live = 1, cols = 0, group = 0;
  DType a = DType::f32, b = DType::f32, w = DType::f32, y = DType::bf16;
  bool add = false;
  int64_t gap = 0;  // elements between rows
  bool in_place = false;
};

// f32 sums of at most 64 terms a thread and 10 steps of a tree, the root and two products.
constexpr double kError = 0x1p-18;

void check(const Spec& s, uint32_t seed) {
  std::mt19937 rng(seed);
  Tensor a(s.a, {s.rows, s.cols}, s.gap), b(s.b, {s.rows, s.cols}, s.gap), w(s.w, {s.group});
  Tensor sum(DType::f32, {s.rows, s.cols}, s.gap), y(s.y, {s.rows, s.cols}, s.gap);
  Tensor want_s(DType::f32, {s.rows, s.cols}), want_y(DType::f32, {s.rows, s.cols});
  a.normal(rng);
  b.normal(rng);
  w.normal(rng);
  const DeviceValue<int64_t> live(s.live);
  const Attrs attrs = Attrs::of(ops::RmsNormAttrs{1e-5f, s.group});
  if (s.add) {
    reference(ops::kAddRmsNorm, attrs, {a.host(), b.host(), w.host()},
              {want_s.host(), want_y.host()}, s.live);
  } else {
    reference(ops::kRmsNorm, attrs, {a.host(), w.host()}, {want_y.host()}, s.live);
  }
  RmsNormParams params = {.a = a.device(),
                          .w = w.device(),
                          .y = y.device(),
                          .eps = 1e-5f,
                          .group = s.group,
                          .rows = live.get()};
  if (s.add) {
    params.b = b.device();
    params.s = s.in_place ? a.device() : sum.device();
  }
  const RowsDesc desc = rms_norm_desc(params);
  const std::vector<float> unnormed = a.row(0);
  for (const RowsConfig& config : norm_candidates(desc)) {
    SCOPED_TRACE(fmt::format("{} x {} in groups of {}, {} live, {} {} {} -> {}, {}, seed {}",
                             s.rows, s.cols, s.group, s.live, name(s.a), s.add ? name(s.b) : "-",
                             name(s.w), name(s.y), to_string(config), seed));
    std::vector<std::byte> first;
    for (bool pdl : {false, true}) {
      y.poison();
      sum.poison();
      a.upload();
      rms_norm(params, config, {.stream = nullptr, .pdl = pdl});
      check_cuda(cudaDeviceSynchronize(), "rms_norm");
      y.download();
      sum.download();
      if (first.empty()) first = y.bytes();
      ASSERT_TRUE(first == y.bytes()) << "two runs differ";
    }
    const auto tolerance = [&](int64_t r, int64_t c) {
      return (rounding(s.y) + kError) * std::abs(want_y.host().row_as<float>(r)[c]);
    };
    ASSERT_EQ(y.compare(want_y.host(), s.live, tolerance), "");
    if (s.add && !s.in_place) {
      ASSERT_EQ(sum.compare(want_s.host(), s.live, [](int64_t, int64_t) { return 0; }), "");
    }
    if (s.in_place) {
      Tensor out(DType::f32, {s.rows, s.cols}, s.gap);
      check_cuda(
          cudaMemcpy(out.bytes().data(), params.a.data, out.bytes().size(), cudaMemcpyDeviceToHost),
          "test");
      for (int64_t r = 0; r < s.live; ++r) {
        ASSERT_EQ(
            std::memcmp(out.host().row(r), want_s.host().row(r), static_cast<size_t>(4 * s.cols)),
            0);
      }
      for (int64_t r = s.live; r < s.rows; ++r) {
        ASSERT_EQ(std::memcmp(out.host().row(r), a.host().row(r), static_cast<size_t>(4 * s.cols)),
                  0);
      }
    }
  }
}

TEST(RmsNorm, Rows) {
  REQUIRE_DEVICE();
  for (int64_t cols : {1, 4, 64, 100, 576, 577, 2048, 4096, 4100, 16384, 20000}) {
    for (auto [rows, live] : {std::pair<int64_t, int64_t>{1, 1}, {5, 3}, {70, 69}, {300, 297}}) {
      if (cols > 5000 && rows > 5) continue;
      for (DType x : {DType::f32, DType::bf16}) {
        for (DType y : {DType::f32, DType::bf16}) {
          check({.rows = rows, .live = live, .cols = cols, .group = cols, .a = x, .y = y},
                static_cast<uint32_t>(cols * 7 + rows));
        }
      }
    }
  }
}

TEST(RmsNorm, HeadGroups) {
  REQUIRE_DEVICE();
  for (auto [heads, dim] :
       {std::pair<int64_t, int64_t>{9, 64}, {32, 128}, {3, 96}, {5, 33}, {2, 256}}) {
    for (int64_t rows : {1, 7, 100}) {
      check({.rows = rows,
             .live = rows - rows / 3,
             .cols = heads * dim,
             .group = dim,
             .a = DType::bf16,
             .w = DType::bf16},
            static_cast<uint32_t>(dim + rows));
    }
  }
}

TEST(RmsNorm, Add) {
  REQUIRE_DEVICE();
  for (int64_t cols : {64, 576, 577, 4096, 20000}) {
    for (auto [rows, live] : {std::pair<int64_t, int64_t>{1, 1}, {33, 20}, {300, 280}}) {
      if (cols > 5000 && rows > 33) continue;
      for (DType b : {DType::f32, DType::bf16}) {
        for (DType y : {DType::f32, DType::bf16}) {
          for (bool in_place : {false, true}) {
            check({.rows = rows,
                   .live = live,
                   .cols = cols,
                   .group = cols,
                   .b = b,
                   .w = DType::f16,
                   .y = y,
                   .add = true,
                   .gap = in_place ? 8 : 3,
                   .in_place = in_place},
                  static_cast<uint32_t>(cols * 3 + rows));
          }
        }
      }
    }
  }
}

TEST(RmsNorm, RefusesWhatItCannot) {
  REQUIRE_DEVICE();
  Tensor a(DType::f32, {2, 64}), y(DType::bf16, {2, 64}), w(DType::f32, {64});
  RmsNormParams p = {.a = a.device(), .w = w.device(), .y = y.device(), .group = 48};
  EXPECT_THROW(rms_norm_desc(p), Error);
  p.group = 32;  // w has 64
  EXPECT_THROW(rms_norm_desc(p), Error);
  p.group = 64;
  EXPECT_NO_THROW(rms_norm_desc(p));
  p.a.dtype = DType::i32;
  EXPECT_THROW(rms_norm_desc(p), Error);
}

}  // namespace
}  // namespace braid::cuda::test
