#include "backend/cuda/pointwise/tensor.h"
#include "braid/kernels/cuda/pointwise/device/add.h"
#include "braid/kernels/cuda/pointwise/device/gated.h"
#include "braid/kernels/cuda/pointwise/device/norm.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm.h"

namespace braid::cuda::test {
namespace {

constexpr std::pair<int64_t, int64_t> kRows[] = {{1, 1}, {6, 4}, {65, 64}, {301, 298}};
constexpr int64_t kCols[] = {1, 8, 100, 576, 577, 4100};

// Runs every candidate twice and checks the second result.
template <class Launch>
void check_candidates(const RowsDesc& desc, Tensor& y, const TensorView& want, int64_t live,
                      const std::function<double(int64_t, int64_t)>& tolerance, Launch launch) {
  for (const RowsConfig& config : map_candidates(desc)) {
    SCOPED_TRACE(fmt::format("{} x {} by {}, {} live, {}", desc.rows, desc.cols, desc.vector, live,
                             to_string(config)));
    std::vector<std::byte> first;
    for (bool pdl : {false, true}) {
      y.poison();
      launch(config, LaunchContext{.stream = nullptr, .pdl = pdl});
      check_cuda(cudaDeviceSynchronize(), "map");
      y.download();
      if (first.empty()) first = y.bytes();
      ASSERT_TRUE(first == y.bytes()) << "two runs differ";
    }
    ASSERT_EQ(y.compare(want, live, tolerance), "");
  }
}

TEST(Gated, AgainstReference) {
  REQUIRE_DEVICE();
  for (auto [rows, live] : kRows) {
    for (int64_t cols : kCols) {
      for (auto [x, out] : {std::pair{DType::bf16, DType::bf16},
                            {DType::f32, DType::f32},
                            {DType::f32, DType::bf16}}) {
        for (auto activation : {ops::Activation::silu, ops::Activation::gelu_tanh}) {
          std::mt19937 rng(static_cast<uint32_t>(rows * 1000 + cols));
          // Both halves of one matrix, as a fused product leaves them.
          Tensor both(x, {rows, 2 * cols}), y(out, {rows, cols}, 8);
          both.normal(rng, 4);
          Tensor want(DType::f32, {rows, cols});
          const auto gate = [&](const TensorView& v) { return slice_cols(v, 0, cols); };
          const auto up = [&](const TensorView& v) { return slice_cols(v, cols, 2 * cols); };
          reference(ops::kGated, Attrs::of(ops::GatedAttrs{activation}),
                    {gate(both.host()), up(both.host())}, {want.host()}, live);
          const DeviceValue<int64_t> rows_live(live);
          const GatedParams params = {.gate = gate(both.device()),
                                      .up = up(both.device()),
                                      .y = y.device(),
                                      .activation = activation,
                                      .rows = rows_live.get()};
          // The reference's 1 + tanh is off by 2^-24 of one, times gate and up.
          std::vector<std::vector<double>> allowed;
          for (int64_t r = 0; r < live; ++r) {
            auto& a = allowed.emplace_back();
            const std::vector<float> x = both.row(r);
            for (int64_t c = 0; c < cols; ++c) {
              const double g = x[static_cast<size_t>(c)], u = x[static_cast<size_t>(cols + c)];
              const double w = want.host().row_as<float>(r)[c];
              a.push_back((rounding(out) + (std::abs(g) + 8) * 0x1p-22) * std::abs(w) +
                          std::abs(g * u) * 0x1p-22);
            }
          }
          check_candidates(
              gated_desc(params), y, want.host(), live,
              [&](int64_t r, int64_t c) {
                return allowed[static_cast<size_t>(r)][static_cast<size_t>(c)];
              },
              [&](const RowsConfig& config, LaunchContext context) {
                gated(params, config, context);
              });
        }
      }
    }
  }
}

TEST(Gated, ExtremesStayFinite) {
  REQUIRE_DEVICE();
  const std::vector<float> gates = {-3e38f, -1e4f, -100.f, -90.f, -0.f, 0.f, 90.f, 1e4f};
  Tensor gate(DType::f32, {1, 8}), up(DType::f32, {1, 8}), y(DType::f32, {1, 8});
  const std::vector<float> ones(8, 1.f);
  std::memcpy(gate.host().data, gates.data(), 32);
  std::memcpy(up.host().data, ones.data(), 32);
  gate.upload();
  up.upload();
  const GatedParams params = {.gate = gate.device(), .up = up.device(), .y = y.device()};
  gated(params, choose_map(gated_desc(params), 132), {});
  y.download();
  const std::vector<float> got = y.row(0);
  for (size_t i = 0; i < 8; ++i) {
    const double want = gates[i] / (1 + std::exp(-double{gates[i]}));
    EXPECT_NEAR(got[i], want, 1e-5 * std::abs(want) + 1e-30) << gates[i];
  }
}

TEST(Add, AgainstReference) {
  REQUIRE_DEVICE();
  for (auto [rows, live] : kRows) {
    for (int64_t cols : kCols) {
      for (auto [x, b] : {std::pair{DType::f32, DType::f32},
                          {DType::f32, DType::bf16},
                          {DType::bf16, DType::bf16}}) {
        std::mt19937 rng(static_cast<uint32_t>(rows * 1000 + cols));
        Tensor a(x, {rows, cols}), other(b, {rows, cols}, 5), y(x, {rows, cols}, 4);
        Tensor want(x, {rows, cols});
        a.normal(rng);
        other.normal(rng);
        reference(ops::kAdd, {}, {a.host(), other.host()}, {want.host()}, live);
        const DeviceValue<int64_t> rows_live(live);
        const AddParams params = {
            .a = a.device(), .b = other.device(), .y = y.device(), .rows = rows_live.get()};
        // One f32 sum, rounded as the reference rounds it: equal.
        check_candidates(
            add_desc(params), y, want.host(), live, [](int64_t, int64_t) { return 0.; },
            [&](const RowsConfig& config, LaunchContext context) { add(params, config, context); });
      }
    }
  }
}

TEST(Convert, IsExactOrRounded) {
  REQUIRE_DEVICE();
  for (auto [rows, live] : kRows) {
    for (int64_t cols : kCols) {
      for (DType from : {DType::f32, DType::bf16}) {
        for (DType to : {DType::f32, DType::bf16}) {
          std::mt19937 rng(static_cast<uint32_t>(rows * 1000 + cols));
          Tensor x(from, {rows, cols}, 8), y(to, {rows, cols}), want(to, {rows, cols});
          x.normal(rng);
          for (int64_t r = 0; r < rows; ++r) {
            quantize_row(to, x.row(r).data(), want.host().row(r), cols);
          }
          const DeviceValue<int64_t> rows_live(live);
          const ConvertParams params = {.x = x.device(), .y = y.device(), .rows = rows_live.get()};
          check_candidates(
              convert_desc(params), y, want.host(), live, [](int64_t, int64_t) { return 0.; },
              [&](const RowsConfig& config, LaunchContext context) {
                convert(params, config, context);
              });
        }
      }
    }
  }
}

// Two hundred dependent launches in a captured graph, each of which may start before the one before
// it is done: y = y + b, then the norm of it into b, and so on, against the same without overlap.
TEST(Pointwise, ChainOfOverlappedLaunches) {
  REQUIRE_DEVICE();
  const int64_t rows = 8, cols = 4096;
  std::mt19937 rng(3);
  Tensor a(DType::f32, {rows, cols}), b(DType::bf16, {rows, cols}), w(DType::f32, {cols});
  a.normal(rng);
  b.normal(rng);
  w.normal(rng);
  const std::vector<std::byte> a0 = a.bytes(), b0 = b.bytes();
  const DeviceValue<int64_t> live(rows);
  const AddParams sum = {.a = a.device(), .b = b.device(), .y = a.device(), .rows = live.get()};
  const RmsNormParams norm = {.a = a.device(),
                              .w = w.device(),
                              .y = b.device(),
                              .eps = 1e-5f,
                              .group = cols,
                              .rows = live.get()};
  std::vector<std::byte> want;
  cudaStream_t stream;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "test");
  for (bool pdl : {false, true}) {
    const LaunchContext context = {stream, pdl};
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "test");
    for (int i = 0; i < 100; ++i) {
      add(sum, choose_map(add_desc(sum), 132), context);
      rms_norm(norm, choose_norm(rms_norm_desc(norm), 132), context);
    }
    check_cuda(cudaStreamEndCapture(stream, &graph), "test");
    check_cuda(cudaGraphInstantiate(&exec, graph, 0), "test");
    for (int replay = 0; replay < 20; ++replay) {
      a.bytes() = a0;
      b.bytes() = b0;
      a.upload();
      b.upload();
      check_cuda(cudaDeviceSynchronize(), "test");
      check_cuda(cudaGraphLaunch(exec, stream), "test");
      check_cuda(cudaStreamSynchronize(stream), "test");
      a.download();
      if (want.empty()) want = a.bytes();
      ASSERT_TRUE(want == a.bytes()) << "replay " << replay << (pdl ? " overlapped" : "");
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
  }
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace braid::cuda::test
