#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "backend/cuda/linear/skinny_case.h"
#include "braid/ops/linear.h"
#include "braid/tensor/half.h"

namespace braid::cuda::test {
namespace {

#define REQUIRE_HOPPER() \
  if (!has_device() || this_device().compute_capability < 90) GTEST_SKIP() << "no Hopper GPU"

// The chosen config, and others that cut the same product: few and many groups a CTA, K in one
// share and in several, of one slab or more a stage, rings shorter and longer than K.
std::vector<PanelConfig> configs(const PanelShape& shape) {
  std::vector<PanelConfig> out = {choose_panel(shape, this_device())};
  for (const auto& [groups, split, slabs, stages] : {std::array{16, 1, 1, 2},
                                                     {1, 2, 2, 3},
                                                     {9, 3, 1, 4},
                                                     {8, 8, 4, 2},
                                                     {2, 1, 1, 4},
                                                     {5, 1, 2, 2},
                                                     {3, 4, 2, 8}}) {
    const PanelConfig c{.groups = groups, .split = split, .slabs = slabs, .stages = stages};
    if (panel_fits(shape, c, this_device())) out.push_back(c);
  }
  return out;
}

void check_all(const CaseSpec& spec) {
  prepare_panel_linear();
  Case c(spec);
  const PanelShape shape = panel_shape(c.params());
  ASSERT_TRUE(panel_takes(shape, this_device())) << to_string(spec);
  for (const PanelConfig& config : configs(shape)) {
    SCOPED_TRACE(to_string(spec) + " as " + to_string(config));
    ASSERT_EQ(c.run(config), "");
    const auto once = c.result();
    ASSERT_EQ(c.run(config, true), "");
    ASSERT_TRUE(once == c.result()) << "two runs differ";
  }
}

TEST(PanelLinear, SweepOfShapesAndTokens) {
  REQUIRE_HOPPER();
  int seed = 0;
  for (const int k : {64, 128, 320, 576, 1536, 4096}) {
    for (const std::vector<int>& n :
         {std::vector<int>{1}, {7}, {16, 3}, {33, 8, 5}, {300}, {128, 64, 64}}) {
      for (const auto& [m, live] : {std::pair{1, -1},
                                    {5, 5},
                                    {8, 7},
                                    {9, -1},
                                    {16, 0},
                                    {17, 16},
                                    {24, 1},
                                    {31, 31},
                                    {32, -1},
                                    {33, -1},
                                    {48, 41},
                                    {64, 64},
                                    {63, 50},
                                    {57, 0}}) {
        if (++seed % 2 == 0 && k > 576) continue;
        check_all({.dtype = seed % 3 == 0 && m <= kPanelWarpTokens ? DType::f16 : DType::bf16,
                   .n = n,
                   .k = k,
                   .m = m,
                   .live = live,
                   .y_dtype = seed % 4 == 0 ? DType::f32 : DType::bf16,
                   .seed = seed});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(PanelLinear, BlockFormats) {
  REQUIRE_HOPPER();
  int seed = 500;
  for (const DType dtype : {DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0,
                            DType::q4_k, DType::q5_k, DType::q6_k}) {
    const int64_t block = info(dtype).block_bytes;
    for (const int k : {256, 512, 576, 1280, 2048, 4096}) {
      if (k % info(dtype).block_elems != 0) continue;
      // Rows of whole 16 bytes: the gap makes them so.
      int64_t gap = 0;
      while ((bytes_of(dtype, k) + gap) % 16 != 0) gap += block;
      for (const auto& [m, live] : {std::pair{5, -1}, {8, 7}, {16, 15}, {19, 19}, {32, 30}}) {
        ++seed;
        const bool gated = seed % 4 == 0;
        check_all({.dtype = dtype,
                   .n = gated ? std::vector<int>{45, 45} : std::vector<int>{130, 7},
                   .k = k,
                   .m = m,
                   .live = live,
                   .bias = seed % 3 == 0,
                   .w_offset = 16 * block,
                   .w_gap = gap,
                   .gated = gated,
                   .seed = seed});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(PanelLinear, BiasesTypesAndStrides) {
  REQUIRE_HOPPER();
  int seed = 1000;
  for (const auto& [w, m] : {std::pair{DType::bf16, 19}, {DType::f16, 19}, {DType::bf16, 51}}) {
    for (const DType y : {DType::bf16, DType::f32}) {
      for (const int gap :
           {0, 1, 2, 4}) {  // of y: where its fours of columns can be stored at once
        check_all({.dtype = w,
                   .n = {65, 31, 18},
                   .k = 320,
                   .m = m,
                   .live = m - 1,
                   .bias = true,
                   .y_dtype = y,
                   .x_gap = 8,
                   .y_gap = gap,
                   .w_offset = 32,
                   .w_gap = 48,
                   .seed = ++seed});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(PanelLinear, GateAndResidual) {
  REQUIRE_HOPPER();
  int seed = 2000;
  for (const ops::Activation activation : {ops::Activation::silu, ops::Activation::gelu_tanh}) {
    for (const int n : {1, 13, 136, 512}) {
      for (const int m : {6, 16, 32, 50, 64}) {
        check_all({.dtype = n == 13 && m <= kPanelWarpTokens ? DType::f16 : DType::bf16,
                   .n = {n, n},
                   .k = 576,
                   .m = m,
                   .live = m - 1,
                   .bias = m == 16,
                   .gated = true,
                   .activation = activation,
                   .seed = ++seed});
        if (HasFatalFailure()) return;
      }
    }
  }
  for (const int m : {5, 12, 32, 40, 64}) {
    check_all({.n = {129},
               .k = 768,
               .m = m,
               .live = m - 2,
               .bias = m == 12,
               .y_dtype = DType::f32,
               .residual = true,
               .seed = ++seed});
  }
}

// A chain of launches that each read what the one before wrote: as one graph with programmatic
// dependent launch, 300 times, it gives the bits of the plain graph.
TEST(PanelLinear, ChainsGiveTheSameBitsWithDependentLaunch) {
  REQUIRE_HOPPER();
  prepare_panel_linear();
  constexpr int kWidth = 1024, kLayers = 8;
  for (const int m : {8, 32, 64}) {
    std::mt19937 rng(7);
    std::vector<DeviceBytes> w, x;
    for (int i = 0; i < kLayers; ++i) {
      const HostWeight host(DType::bf16, kWidth, kWidth, 0, 0, rng);
      w.emplace_back(host.bytes.size());
      w.back().upload(host.bytes.data(), host.bytes.size());
    }
    std::vector<bf16> start(static_cast<size_t>(m) * kWidth);
    for (bf16& v : start) v = to_bf16(std::normal_distribution<float>()(rng));
    for (int i = 0; i <= kLayers; ++i) x.emplace_back(start.size() * sizeof(bf16));
    x[0].upload(start.data(), x[0].size);
    const auto enqueue = [&](cudaStream_t s, bool pdl) {
      for (int i = 0; i < kLayers; ++i) {
        SkinnyParams p;
        p.x = x[i].data;
        p.x_stride = p.k = kWidth;
        p.m = m;
        p.parts[0] = {w[i].data,     DType::bf16, 2 * kWidth, nullptr, DType::f32,
                      x[i + 1].data, DType::bf16, kWidth,     kWidth};
        panel_linear(p, choose_panel(panel_shape(p), this_device()), {s, pdl});
      }
    };
    cudaStream_t s;
    check_cuda(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "stream");
    std::vector<uint8_t> expected;
    for (const bool pdl : {false, true}) {
      cudaGraph_t graph;
      cudaGraphExec_t exec;
      check_cuda(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "capture");
      enqueue(s, pdl);
      check_cuda(cudaStreamEndCapture(s, &graph), "capture");
      check_cuda(cudaGraphInstantiate(&exec, graph, 0), "graph");
      for (int replay = 0; replay < (pdl ? 300 : 1); ++replay) {
        for (int i = 1; i <= kLayers; ++i) {
          check_cuda(cudaMemsetAsync(x[i].data, 0xff, x[i].size, s), "poison");
        }
        check_cuda(cudaGraphLaunch(exec, s), "replay");
        check_cuda(cudaStreamSynchronize(s), "replay");
        const auto bits = x[kLayers].download();
        if (!pdl) expected = bits;
        ASSERT_TRUE(bits == expected) << "m " << m << ", replay " << replay;
      }
      for (size_t i = 0; i < start.size(); ++i) {
        bf16 v;
        std::memcpy(&v, &expected[2 * i], 2);
        ASSERT_TRUE(std::isfinite(to_float(v))) << "element " << i;
      }
      check_cuda(cudaGraphExecDestroy(exec), "graph");
      check_cuda(cudaGraphDestroy(graph), "graph");
    }
    check_cuda(cudaStreamDestroy(s), "stream");
  }
}

TEST(PanelLinear, LeavesOthersWhatItCannotTake) {
  REQUIRE_HOPPER();
  const auto takes = [](const CaseSpec& spec) {
    return panel_takes(panel_shape(Case(spec).params()), this_device());
  };
  const CaseSpec good{.n = {32}, .k = 128, .m = 8};
  EXPECT_TRUE(takes(good));
  const auto refuses = [&](auto&& change) {
    CaseSpec spec = good;
    change(spec);
    return !takes(spec);
  };
  EXPECT_TRUE(refuses([](CaseSpec& s) { s.dtype = DType::f32; }));
  EXPECT_TRUE(refuses([](CaseSpec& s) { s.x_dtype = DType::f32; }));
  EXPECT_TRUE(refuses([](CaseSpec& s) { s.x_gap = 4; }));
  EXPECT_TRUE(refuses([](CaseSpec& s) { s.w_gap = 8; }));
  EXPECT_TRUE(refuses([](CaseSpec& s) { s.w_offset = 8; }));
  EXPECT_TRUE(refuses([](CaseSpec& s) { s.normed = true; }));
  EXPECT_TRUE(refuses([](CaseSpec& s) { s.k = 96; }));
  EXPECT_TRUE(refuses([](CaseSpec& s) { s.m = 65; }));
  EXPECT_TRUE(refuses([](CaseSpec& s) { s.dtype = DType::f16, s.m = 33; }));
}

}  // namespace
}  // namespace braid::cuda::test
