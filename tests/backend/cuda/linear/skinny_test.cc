#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/cuda/linear/skinny_case.h"
#include "braid/base/error.h"
#include "braid/ops/linear.h"
#include "braid/tensor/half.h"

namespace braid::cuda::test {
namespace {

#define REQUIRE_DEVICE() \
  if (!has_device()) GTEST_SKIP() << "no CUDA device"

constexpr DType kWeights[] = {DType::bf16, DType::f16,  DType::f32,  DType::q4_0,
                              DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0,
                              DType::q4_k, DType::q5_k, DType::q6_k};

// The chosen config, and others that the case can take: few CTAs, short rings, clusters.
std::vector<SkinnyConfig> configs(const SkinnyParams& params) {
  const SkinnyShape shape = skinny_shape(params);
  const SkinnyConfig chosen = choose_skinny(shape, this_device());
  std::vector<SkinnyConfig> out = {chosen};
  const auto add = [&](SkinnyConfig c) {
    if (skinny_fits(shape, c, this_device())) out.push_back(c);
  };
  SkinnyConfig c{.tokens = chosen.tokens, .clusters = 1, .chunk = 256, .stages = kSkinnyMinStages};
  add(c);
  c.split_k = false;
  c.stages = kSkinnyWarps;
  c.clusters = 2;
  add(c);
  for (int cluster : {2, 4, 8}) {
    c.cluster = cluster;
    c.clusters = cluster == 4 ? 2 : 1;
    c.stages = cluster == 4 ? 2 * kSkinnyWarps : kSkinnyWarps;
    add(c);
  }
  add({.bulk = false, .tokens = chosen.tokens, .clusters = 3, .stages = 1});
  return out;
}

void check_all(const CaseSpec& spec) {
  Case c(spec);
  for (const SkinnyConfig& config : configs(c.params())) {
    SCOPED_TRACE(to_string(spec) + " as " + to_string(config));
    ASSERT_EQ(c.run(config), "");
    const auto once = c.result();
    ASSERT_EQ(c.run(config, true), "");
    ASSERT_TRUE(once == c.result()) << "two runs differ";
  }
}

struct Shape {
  std::vector<int> n;
  int k;
};

int granule(DType dtype) {
  return info(dtype).block_elems;
}

TEST(Skinny, SweepOfDtypesShapesAndTokens) {
  REQUIRE_DEVICE();
  const Shape shapes[] = {{{1}, 32},    {{7}, 64},        {{16, 3}, 96}, {{33, 8, 5}, 256},
                          {{300}, 576}, {{24, 17}, 2304}, {{20}, 4096}};
  constexpr int kTokens[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32};
  int seed = 0;
  for (DType dtype : kWeights) {
    for (const Shape& shape : shapes) {
      if (shape.k % granule(dtype) != 0) continue;
      for (int turn = 0; turn < 3; ++turn) {
        CaseSpec spec;
        spec.seed = ++seed;
        spec.dtype = dtype;
        spec.n = shape.n;
        spec.k = shape.k;
        spec.m = kTokens[seed * 3 % 11];
        spec.live = seed % 3 == 0 ? -1 : (seed * 7) % (spec.m + 1);
        spec.bias = seed % 2 == 0;
        spec.x_dtype = seed % 5 == 0 ? DType::f32 : DType::bf16;
        spec.y_dtype = seed % 4 == 0 ? DType::f32 : DType::bf16;
        spec.y_gap = seed % 3;
        spec.x_gap = seed % 7 == 0 ? 3 : 0;
        check_all(spec);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Skinny, EveryCountOfTokens) {
  REQUIRE_DEVICE();
  for (DType dtype : {DType::bf16, DType::q4_1, DType::q6_k}) {
    for (int m : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64}) {
      CaseSpec spec;
      spec.dtype = dtype;
      spec.n = {19, 6};
      spec.k = 512;
      spec.m = m;
      spec.seed = 100 + m;
      check_all(spec);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Skinny, RowsThatTheCopyEngineCannotTake) {
  REQUIRE_DEVICE();
  int seed = 300;
  for (DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (int k : {1, 31, 100, 577, 1030}) {
      for (int m : {1, 9, 32}) {
        CaseSpec spec;
        spec.dtype = dtype;
        spec.n = {21};
        spec.k = k;
        spec.m = m;
        spec.seed = ++seed;
        check_all(spec);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Skinny, SlicedWeights) {
  REQUIRE_DEVICE();
  int seed = 400;
  for (DType dtype : kWeights) {
    const int64_t block = info(dtype).block_bytes;
    for (auto [offset, gap] : {std::pair<int64_t, int64_t>{block, 2 * block},
                               {3 * block, block},
                               {16 * block, 48 * block},
                               {0, block}}) {
      CaseSpec spec;
      spec.dtype = dtype;
      spec.n = {37};
      spec.k = granule(dtype) == 256 ? 1280 : 640;
      spec.m = seed % 2 == 0 ? 1 : 11;
      spec.w_offset = offset;
      spec.w_gap = gap;
      spec.seed = ++seed;
      check_all(spec);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Skinny, Gated) {
  REQUIRE_DEVICE();
  int seed = 500;
  for (DType dtype : kWeights) {
    for (int m : {1, 8, 16, 32}) {
      CaseSpec spec;
      spec.dtype = dtype;
      spec.n = {45, 45};
      spec.k = 768;
      spec.m = m;
      spec.live = m - m / 4;
      spec.gated = true;
      spec.activation = m % 16 == 0 ? ops::Activation::gelu_tanh : ops::Activation::silu;
      spec.bias = m == 8;
      spec.seed = ++seed;
      check_all(spec);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Skinny, NormAndResidual) {
  REQUIRE_DEVICE();
  int seed = 600;
  for (DType dtype :
       {DType::bf16, DType::f16, DType::q4_1, DType::q8_0, DType::q4_k, DType::q6_k}) {
    for (int m : {1, 3, 8, 17}) {
      for (int k : {256, 1280, 4096}) {
        CaseSpec spec;
        spec.dtype = dtype;
        spec.n = {23};
        spec.k = k;
        spec.m = m;
        spec.live = m == 1 ? -1 : m - 1;
        spec.normed = seed % 4 != 0;
        spec.norm_b = seed % 2 == 0;
        spec.norm_sum = spec.normed && seed % 3 == 0;
        spec.residual = seed % 4 == 0 || seed % 5 == 0;
        if (spec.residual) spec.y_dtype = DType::f32;
        spec.x_gap = seed % 5 == 3 ? 1 : 0;
        spec.seed = ++seed;
        check_all(spec);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// A chain of launches that each read what the one before wrote: as one graph with programmatic
// dependent launch, 1000 times, it gives the bits of the plain graph.
TEST(Skinny, ChainsGiveTheSameBitsWithDependentLaunch) {
  REQUIRE_DEVICE();
  const SkinnyDevice device = this_device();
  constexpr int kWidth = 1024, kLayers = 6;
  for (const int m : {1, 8, 32}) {
    std::mt19937 rng(7);
    std::vector<DeviceBytes> w;
    for (int i = 0; i < 2 * kLayers; ++i) {
      const HostWeight host(DType::bf16, kWidth, kWidth, 0, 0, rng);
      w.emplace_back(host.bytes.size());
      w.back().upload(host.bytes.data(), host.bytes.size());
    }
    std::vector<float> start(m * kWidth), ones(kWidth, 1.f);
    for (float& x : start) x = std::normal_distribution<float>()(rng);
    DeviceBytes first(start.size() * 4), unit(ones.size() * 4), hidden(m * kWidth * 2);
    first.upload(start.data(), first.size);
    unit.upload(ones.data(), unit.size);
    std::vector<DeviceBytes> stream;
    for (int i = 0; i < 2; ++i) stream.emplace_back(first.size);

    const auto enqueue = [&](cudaStream_t s, bool pdl) {
      for (int i = 0; i < kLayers; ++i) {
        const float* in =
            reinterpret_cast<const float*>(i == 0 ? first.data : stream[(i - 1) % 2].data);
        SkinnyParams up;
        up.k = kWidth;
        up.m = m;
        up.normed = true;
        up.norm.a = in;
        up.norm.a_stride = kWidth;
        up.norm.w = unit.data;
        up.parts[0] = {w[2 * i].data, DType::bf16, 2 * kWidth, nullptr, DType::f32,
                       hidden.data,   DType::bf16, kWidth,     kWidth};
        skinny_linear(up, choose_skinny(skinny_shape(up), device), {s, pdl});
        SkinnyParams down;
        down.k = kWidth;
        down.m = m;
        down.x = hidden.data;
        down.x_stride = kWidth;
        down.residual = in;
        down.residual_stride = kWidth;
        down.parts[0] = {w[2 * i + 1].data,  DType::bf16, 2 * kWidth, nullptr, DType::f32,
                         stream[i % 2].data, DType::f32,  kWidth,     kWidth};
        skinny_linear(down, choose_skinny(skinny_shape(down), device), {s, pdl});
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
      for (int replay = 0; replay < (pdl ? 1000 : 1); ++replay) {
        for (const DeviceBytes& d : stream) {
          check_cuda(cudaMemsetAsync(d.data, 0xff, d.size, s), "poison");
        }
        check_cuda(cudaMemsetAsync(hidden.data, 0xff, hidden.size, s), "poison");
        check_cuda(cudaGraphLaunch(exec, s), "replay");
        check_cuda(cudaStreamSynchronize(s), "replay");
        const auto bits = stream[(kLayers - 1) % 2].download();
        if (!pdl) expected = bits;
        ASSERT_TRUE(bits == expected) << "m " << m << ", replay " << replay;
      }
      for (size_t i = 0; i < expected.size(); i += 4) {
        float x;
        std::memcpy(&x, &expected[i], 4);
        ASSERT_TRUE(std::isfinite(x)) << "element " << i / 4;
      }
      check_cuda(cudaGraphExecDestroy(exec), "graph");
      check_cuda(cudaGraphDestroy(graph), "graph");
    }
    check_cuda(cudaStreamDestroy(s), "stream");
  }
}

TEST(Skinny, BadCallsSayWhatIsWrong) {
  const auto message = [](SkinnyParams p) {
    try {
      skinny_linear(p, SkinnyConfig{}, {});
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  SkinnyParams p;
  p.k = 64;
  p.m = 1;
  p.parts[0].n = p.parts[1].n = 8;
  SkinnyParams bad = p;
  bad.parts[0].dtype = DType::q4_k;
  EXPECT_EQ(message(bad), "linear: k = 64 (whole blocks of the weight)");
  bad = p;
  bad.num_parts = 2;
  bad.parts[1].dtype = DType::q4_0;
  EXPECT_EQ(message(bad), "linear: weights of bf16 and q4_0 in one launch (one dtype)");
  bad.gated = true;
  EXPECT_EQ(message(bad), "gated linear: weights of bf16 and q4_0 (one dtype)");
  bad = p;
  bad.num_parts = 4;
  EXPECT_EQ(message(bad), "linear: num_parts = 4 (1 to 3)");
}

}  // namespace
}  // namespace braid::cuda::test
