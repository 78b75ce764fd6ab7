#include "braid/kernels/cuda/linear/device/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "braid/base/error.h"
#include "braid/kernels/cuda/bind_gemm.h"
#include "braid/tensor/quant.h"

namespace braid::cuda::test {
namespace {

// The library of the tests, or null with a reason to skip.
std::shared_ptr<const CublasLt> library() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0 || !cublaslt_available()) return {};
  static const std::shared_ptr<const CublasLt> loaded = CublasLt::load();
  return loaded;
}
#define REQUIRE_LIBRARY(lt)  \
  const auto lt = library(); \
  if (!lt) GTEST_SKIP() << "no CUDA device, or no cuBLASLt"

// Bytes on both sides.
struct Array {
  explicit Array(size_t bytes) : host(bytes, 0xff) {
    check_cuda(cudaMalloc(&device, std::max<size_t>(bytes, 1)), "test");
    upload();
  }
  ~Array() { cudaFree(device); }
  Array(const Array&) = delete;
  void upload() {
    check_cuda(cudaMemcpy(device, host.data(), host.size(), cudaMemcpyHostToDevice), "test");
  }
  void download() {
    check_cuda(cudaMemcpy(host.data(), device, host.size(), cudaMemcpyDeviceToHost), "test");
  }
  std::vector<float> row(DType dtype, int64_t stride, int64_t r, int64_t cols) const {
    std::vector<float> out(static_cast<size_t>(cols));
    dequantize_row(dtype, host.data() + bytes_of(dtype, r * stride), out.data(), cols);
    return out;
  }
  void fill(DType dtype, int64_t rows, int64_t cols, int64_t stride, std::mt19937& rng) {
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<size_t>(cols));
    for (int64_t r = 0; r < rows; ++r) {
      for (float& v : x) v = normal(rng);
      quantize_row(dtype, x.data(), host.data() + bytes_of(dtype, r * stride), cols);
    }
    upload();
  }

  std::vector<uint8_t> host;
  uint8_t* device = nullptr;
};

size_t bytes(DType dtype, int64_t rows, int64_t stride) {
  return static_cast<size_t>(bytes_of(dtype, rows * stride));
}

enum class Tuned { no, yes };

// Sampled rows against f64; bytes between rows stay; two runs and a graph replay are equal.
void check(GemmDesc d, Tuned tuned = Tuned::no, bool in_place = false) {
  REQUIRE_LIBRARY(lt);
  const uint32_t seed = static_cast<uint32_t>(d.m * 31 + d.n * 7 + d.k);
  SCOPED_TRACE(fmt::format("{}, seed {}", to_string(d), seed));
  std::mt19937 rng(seed);
  Gemm gemm(lt, d);
  const GemmDesc& g = gemm.desc();
  Array x(bytes(d.dtype, g.m, g.x_stride)), w(bytes(d.dtype, g.n, g.w_stride));
  Array bias(bytes(d.y_dtype, 1, g.n)), residual(bytes(d.y_dtype, g.m, g.y_stride));
  Array y(bytes(d.y_dtype, g.m, g.y_stride)), workspace(gemm.workspace_bytes());
  x.fill(d.dtype, g.m, g.k, g.x_stride, rng);
  w.fill(d.dtype, g.n, g.k, g.w_stride, rng);
  bias.fill(d.y_dtype, 1, g.n, g.n, rng);
  residual.fill(d.y_dtype, g.m, g.n, g.y_stride, rng);
  GemmPointers p = {.x = x.device,
                    .w = w.device,
                    .bias = bias.device,
                    .residual = residual.device,
                    .y = y.device,
                    .workspace = workspace.device};
  gemm.prepare(p, nullptr, tuned == Tuned::yes);
  const std::vector<uint8_t> poison = std::vector<uint8_t>(y.host.size(), 0xff);
  const std::vector<uint8_t> start = in_place ? residual.host : poison;
  if (in_place) p.residual = y.device;

  std::vector<uint8_t> first;
  cudaStream_t stream;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "test");
  for (bool captured : {false, true}) {
    y.host = start;
    y.upload();
    check_cuda(cudaDeviceSynchronize(), "test");
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    if (captured) {
      check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "test");
    }
    gemm.run({stream, false}, p);
    if (captured) {
      check_cuda(cudaStreamEndCapture(stream, &graph), "test");
      check_cuda(cudaGraphInstantiate(&exec, graph, 0), "test");
      check_cuda(cudaGraphLaunch(exec, stream), "test");
    }
    check_cuda(cudaStreamSynchronize(stream), "test");
    if (exec) cudaGraphExecDestroy(exec);
    if (graph) cudaGraphDestroy(graph);
    y.download();
    if (first.empty()) first = y.host;
    ASSERT_TRUE(first == y.host) << "two runs differ; " << gemm.algorithm();
  }
  cudaStreamDestroy(stream);

  const std::vector<float> b = bias.row(d.y_dtype, g.n, 0, g.n);
  std::vector<std::vector<float>> weights;
  for (int64_t n = 0; n < g.n; ++n) weights.push_back(w.row(d.dtype, g.w_stride, n, g.k));
  const double rounded = d.y_dtype == DType::f32   ? 0x1p-24
                         : d.y_dtype == DType::f16 ? 0x1p-11
                                                   : 0x1p-8;
  for (int64_t sample = 0; sample < std::min<int64_t>(g.m, 5); ++sample) {
    const int64_t r =
        sample == 0 ? g.m - 1 : static_cast<int64_t>(rng() % static_cast<uint64_t>(g.m));
    const std::vector<float> xr = x.row(d.dtype, g.x_stride, r, g.k);
    const std::vector<float> got = y.row(d.y_dtype, g.y_stride, r, g.n);
    const std::vector<float> add = residual.row(d.y_dtype, g.y_stride, r, g.n);
    for (int64_t n = 0; n < g.n; ++n) {
      const auto i = static_cast<size_t>(n);
      double sum = 0, size = 0, twice = 0;
      for (size_t c = 0; c < xr.size(); ++c) {
        sum += double{xr[c]} * weights[i][c];
        size += std::abs(double{xr[c]} * weights[i][c]);
      }
      if (d.bias) sum += b[i], size += std::abs(b[i]);
      if (d.residual) {
        twice = std::abs(sum);  // the library may round the product before it adds
        sum += add[i], size += std::abs(add[i]);
      }
      // f32 sums in an unknown order (error at most depth 2^-24 of the terms' sizes; the tensor
      // cores drop bits below theirs), then one rounding.
      const double allowed = rounded * (std::abs(sum) + twice) + 0x1p-17 * size;
      ASSERT_LE(std::abs(got[i] - sum), allowed) << "row " << r << " column " << n << ": " << got[i]
                                                 << ", not " << sum << "; " << gemm.algorithm();
    }
  }
  // Between the rows nothing was written.
  for (int64_t r = 0; r + 1 < g.m; ++r) {
    for (size_t at = bytes(d.y_dtype, 1, r * g.y_stride + g.n);
         at < bytes(d.y_dtype, 1, (r + 1) * g.y_stride); ++at) {
      ASSERT_EQ(y.host[at], start[at]) << "between rows " << r << " and " << r + 1;
    }
  }
}

TEST(Gemm, OddSizes) {
  for (auto [m, n, k] : {std::array<int64_t, 3>{1, 8, 8},
                         {33, 64, 64},
                         {100, 576, 192},
                         {128, 129, 136},
                         {257, 200, 1000},
                         {640, 96, 4096},
                         {65, 31, 17}}) {
    check({.m = m, .n = n, .k = k});
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Gemm, TypesAndEpilogues) {
  for (DType dtype : {DType::bf16, DType::f16}) {
    for (DType y : {dtype, DType::f32}) {
      for (bool bias : {false, true}) {
        for (bool residual : {false, true}) {
          const GemmDesc d = {.m = 72,
                              .n = 192,
                              .k = 320,
                              .dtype = dtype,
                              .y_dtype = y,
                              .bias = bias,
                              .residual = residual};
          check(d);
          if (residual) check(d, Tuned::no, true);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// Against the same products one by one; what lies between the two stays.
TEST(Gemm, Pairs) {
  REQUIRE_LIBRARY(lt);
  std::mt19937 rng(5);
  for (auto [m, n, k, gap] : {std::array<int64_t, 4>{96, 1024, 512, 0},
                              {130, 72, 320, 4096},
                              {1, 8, 64, 48},
                              {257, 200, 1000, 1 << 20}}) {
    for (DType y_dtype : {DType::bf16, DType::f32}) {
      const GemmDesc one = {.m = m, .n = n, .k = k, .y_dtype = y_dtype};
      GemmDesc both = one;
      both.pair = true;
      SCOPED_TRACE(to_string(both));
      const auto apart = static_cast<size_t>(gap);
      const size_t of_w = bytes(DType::bf16, n, k) + apart, of_y = bytes(y_dtype, m, n) + apart;
      const auto up = [](size_t x) { return (x + 15) / 16 * 16; };
      Array x(bytes(DType::bf16, m, k)), w(up(of_w) + bytes(DType::bf16, n, k));
      Array y(up(of_y) + bytes(y_dtype, m, n)), workspace(32 << 20);
      x.fill(DType::bf16, m, k, k, rng);
      w.fill(DType::bf16, n, k, k, rng);
      for (size_t at = 0; at < bytes(DType::bf16, n, k); ++at) {
        w.host[up(of_w) + at] = w.host[bytes(DType::bf16, n, k) - 2 - at / 2 * 2 + at % 2];
      }
      w.upload();
      const GemmPointers p = {.x = x.device,
                              .w = w.device,
                              .y = y.device,
                              .w2 = w.device + up(of_w),
                              .y2 = y.device + up(of_y),
                              .workspace = workspace.device};
      Gemm gemm(lt, both), single(lt, one);
      gemm.prepare(p, nullptr, m > 100);
      single.prepare(p, nullptr, false);
      y.host.assign(y.host.size(), 0xff);
      y.upload();
      gemm.run({}, p);
      check_cuda(cudaDeviceSynchronize(), "test");
      y.download();
      const std::vector<uint8_t> got = y.host;
      for (size_t at = bytes(y_dtype, m, n); at < up(of_y); ++at) ASSERT_EQ(got[at], 0xff);
      for (bool second : {false, true}) {
        GemmPointers alone = p;
        if (second) alone.w = p.w2;
        single.run({}, alone);
        check_cuda(cudaDeviceSynchronize(), "test");
        y.download();
        Array of_pair(y.host.size());
        of_pair.host.assign(got.begin() + static_cast<int64_t>(second ? up(of_y) : 0), got.end());
        for (int64_t r = 0; r < m; ++r) {
          const std::vector<float> a = y.row(y_dtype, n, r, n), b = of_pair.row(y_dtype, n, r, n);
          for (size_t c = 0; c < a.size(); ++c) {
            // Sums of k terms in another order, about sqrt(k) large, and one rounding.
            const double allowed = 0x1p-7 * std::abs(a[c]) + 0x1p-14 * std::sqrt(double(k));
            ASSERT_NEAR(a[c], b[c], allowed) << (second ? "second" : "first") << " row " << r;
          }
        }
      }
      GemmPointers wrong = p;
      std::swap(wrong.y, wrong.y2);
      EXPECT_THROW(gemm.run({}, wrong), Error);
    }
  }
}

TEST(Gemm, StridesAndTuning) {
  check({.m = 130,
         .n = 256,
         .k = 512,
         .y_dtype = DType::f32,
         .residual = true,
         .x_stride = 1024,
         .w_stride = 520,
         .y_stride = 768},
        Tuned::yes);
  check({.m = 300, .n = 512, .k = 256, .bias = true}, Tuned::yes);
}

// A server sees prompt lengths without end: none waits for a search, and none leaves a product.
TEST(Gemm, LengthsOfPromptsSearchNothing) {
  REQUIRE_LIBRARY(lt);
  constexpr int64_t kMost = 2200, n = 320, k = 256;
  Array x(bytes(DType::bf16, kMost, k)), w(bytes(DType::bf16, n, k));
  Array y(bytes(DType::bf16, kMost, n)), workspace(GemmStore::kWorkspaceBytes);
  const GemmPointers p = {
      .x = x.device, .w = w.device, .y = y.device, .workspace = workspace.device};
  GemmStore store;
  std::vector<std::shared_ptr<Gemm>> held;
  const auto get = [&](int64_t m, BatchAxis axis) {
    held.push_back(store.get({.m = m, .n = n, .k = k}, p, axis));
  };
  for (int64_t m : {1, 1023, 1025, 1100, 2101}) get(m, BatchAxis::shard);
  EXPECT_EQ(store.searches(), 0);
  EXPECT_EQ(store.get({.m = 2101, .n = n, .k = k}, p, BatchAxis::shard), held.back());
  get(1152, BatchAxis::token);
  EXPECT_EQ(store.searches(), 1);  // a capacity
  get(1152, BatchAxis::token);
  get(1999, BatchAxis::none);
  EXPECT_EQ(store.searches(), 2);  // a picture
  const std::weak_ptr<Gemm> dropped = held.front();
  held.clear();
  EXPECT_TRUE(dropped.expired());
  get(1, BatchAxis::shard);
  EXPECT_EQ(store.searches(), 2);
}

TEST(Gemm, RefusesWhatItCannot) {
  REQUIRE_LIBRARY(lt);
  EXPECT_THROW(Gemm(lt, {.m = 0, .n = 8, .k = 8}), Error);
  EXPECT_THROW(Gemm(lt, {.m = 8, .n = 8, .k = 8, .dtype = DType::f32}), Error);
  EXPECT_THROW(Gemm(lt, {.m = 8, .n = 8, .k = 8, .y_dtype = DType::f16}), Error);
  EXPECT_THROW(Gemm(lt, {.m = 8, .n = 8, .k = 8, .x_stride = 4}), Error);
  Gemm gemm(lt, {.m = 8, .n = 8, .k = 8});
  EXPECT_THROW(gemm.run({}, {}), Error);
}

TEST(CublasLt, MissingLibraryIsNamed) {
  const CublasLtOptions options = {.search = {"libno-such-library.so.1", "/nowhere/*/lib.so"}};
  EXPECT_FALSE(cublaslt_available(options));
  try {
    CublasLt::load(options);
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_NE(std::string(error.what()).find("libno-such-library"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("/nowhere/*/lib.so"), std::string::npos);
  }
}

}  // namespace
}  // namespace braid::cuda::test
