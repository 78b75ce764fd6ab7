// Attention over the keys that a GPU holds, against the scalar reference: by the decode kernel, by
// its form for page tables, and by the plain one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numbers>

#include "backend/cuda/decode/state_case.h"
#include "braid/base/error.h"
#include "braid/kernels/cuda/decode/device/paged_states.h"
#include "braid/kernels/cuda/decode/device/states.h"

namespace braid::cuda::test {
namespace {

TEST(States, EqualTheReference) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no CUDA device";
  std::vector<Range> few_of_many(41, Range{3, 3});  // of queries with keys
  for (size_t t = 2; t < few_of_many.size(); t += 5) {
    few_of_many[t] = {0, 50 + static_cast<int64_t>(t)};
  }
  const std::vector<StateSpec> specs = {
      {.keys = {{0, 1}}},
      {.keys = {{0, 0}}},
      {.keys = {{0, 0}, {2, 2}, {0, 0}}},
      {.keys = few_of_many, .sequences = 3},
      {.keys = {{0, 0}, {0, 64}, {3, 65}, {0, 0}, {65, 65}}},
      {.head_dim = 64, .cache = DType::f16, .keys = {{5, 700}}},
      {.kv_heads = 8, .keys = {{0, 20000}}},
      {.kv_heads = 1, .group = 7, .head_dim = 96, .q = DType::f32, .keys = {{0, 33}, {32, 33}}},
      {.group = 20, .head_dim = 256, .softcap = 30, .keys = {{0, 129}, {16, 129}}},
      {.keys = {{0, 9}, {0, 5000}, {4, 10}, {0, 77}}, .sequences = 2},
      {.head_dim = 80, .keys = {{0, 70}, {69, 70}}},
      {.cache = DType::f32, .q = DType::f32, .keys = {{0, 41}}},
  };
  for (StateSpec spec : specs) {
    spec.seed = 7 + static_cast<uint32_t>(spec.keys.size());
    const StateCase c(spec);
    SCOPED_TRACE(to_string(c.desc()));
    const auto want = c.reference();
    c.expect_equal(c.run(nullptr), want, 1e-4);
    std::vector<DecodeConfig> configs;
    try {
      configs = candidates(c.desc(), decode_device());
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), ErrorCode::kUnsupported);
    }
    EXPECT_EQ(configs.empty(), spec.head_dim == 80 || spec.cache == DType::f32);
    if (!configs.empty()) prepare_attention_states(c.desc());
    for (const DecodeConfig& config : configs) {
      SCOPED_TRACE(to_string(config));
      const auto got = c.run(&config);
      c.expect_equal(got, want, 1e-2);
      EXPECT_EQ(std::memcmp(got.data(), c.run(&config).data(), got.size() * 4), 0);
    }
  }
}

// Queries of a sequence see each other's new keys; keys before are there from the start.
TEST(States, WaitForTheKernelBefore) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no CUDA device";
  const std::vector<StateSpec> specs = {
      {.kv_heads = 8, .keys = {{0, 20000}}},
      {.keys = {{0, 65}}},
      {.keys = {{0, 1}, {0, 2}, {0, 3}}},
      {.keys = {{0, 1024}, {0, 1025}, {7, 1026}, {0, 1027}, {1000, 1028}}},
      {.head_dim = 64, .keys = {{0, 700}, {0, 0}, {0, 701}, {64, 130}}, .sequences = 2},
  };
  for (StateSpec spec : specs) {
    const StateCase c(spec);
    SCOPED_TRACE(to_string(c.desc()));
    prepare_attention_states(c.desc());
    for (const DecodeConfig& config : candidates(c.desc(), decode_device())) {
      SCOPED_TRACE(to_string(config));
      const auto want = c.run(&config);
      for (int round = 0; round < 5; ++round) {
        EXPECT_EQ(std::memcmp(want.data(), c.run(&config, true).data(), want.size() * 4), 0);
      }
    }
  }
}

// Over pages, as the chunks of a long sequence are read.
TEST(States, OverPages) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no CUDA device";
  const std::vector<StateSpec> specs = {
      {.keys = {{0, 1}}},
      {.keys = {{0, 0}, {0, 64}, {3, 65}, {0, 0}, {65, 65}}},
      {.head_dim = 64, .cache = DType::f16, .keys = {{5, 700}}},
      {.kv_heads = 8, .q = DType::f32, .keys = {{0, 20000}}, .page_size = 64},
      {.keys = {{0, 9}, {0, 5000}, {48, 96}, {47, 97}}, .sequences = 2, .page_size = 48},
      {.group = 7, .head_dim = 64, .keys = {{0, 33}, {32, 33}, {1, 3}}, .page_size = 256},
  };
  for (StateSpec spec : specs) {
    spec.paged = true;
    const StateCase c(spec);
    SCOPED_TRACE(to_string(c.paged_desc()));
    const auto want = c.reference();
    prepare_paged_states(c.paged_desc());
    for (const DecodeConfig& config : candidates(c.paged_desc(), decode_device())) {
      SCOPED_TRACE(to_string(config));
      const auto got = c.run_paged(config);
      c.expect_equal(got, want, 1e-2);
      EXPECT_EQ(std::memcmp(got.data(), c.run_paged(config).data(), got.size() * 4), 0);
    }
  }
}

// States of 3,072 keys and of 64 others, as two GPUs that hold them make them, merge to attention
// over all: the furthest of any head's result, by its length.
double merged_distance(const std::vector<float>& states, const std::vector<float>& want,
                       int64_t heads, int64_t D) {
  const int64_t part = heads * (D + 2);
  const DeviceBuffer<float> parts(std::vector<float>(states.begin() + part, states.end()));
  DeviceBuffer<float> out(static_cast<size_t>(heads * D));
  out.fill(0xff);
  const auto view = [](const float* of, const Shape& shape) {
    return make_view(reinterpret_cast<std::byte*>(const_cast<float*>(of)), DType::f32, shape);
  };
  merge_states({.states = view(parts.data(), {1, 2, heads, D + 2}),
                .out = view(out.data(), {1, heads * D}),
                .parts = 2},
               {});
  const std::vector<float> got = out.download();
  double furthest = 0;
  for (int64_t h = 0; h < heads; ++h) {
    const float* whole = want.data() + h * (D + 2);
    double off = 0, length = 0;
    for (int64_t d = 0; d < D; ++d) {
      const double w = double{whole[d]} / whole[D], x = got[static_cast<size_t>(h * D + d)] - w;
      off += x * x;
      length += w * w;
    }
    const double distance = std::sqrt(off / length);
    furthest = distance >= furthest ? distance : std::isnan(distance) ? INFINITY : furthest;
  }
  return furthest;
}

TEST(States, OfPartsMergeToTheWhole) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no CUDA device";
  StateSpec spec{
      .kv_heads = 3, .keys = {{0, 3136}, {0, 3072}, {3072, 3136}}, .one_query = true, .seed = 9};
  for (const int64_t D : {64, 128}) {
    spec.head_dim = D;
    const int64_t heads = spec.kv_heads * spec.group;
    const auto check = [&](const StateCase& c, const std::vector<float>& got, double tolerance) {
      const std::vector<float> want = c.reference();
      EXPECT_LT(merged_distance(got, want, heads, D), tolerance);
      // A maximum in base 2 would show.
      std::vector<float> base2 = got;
      for (size_t i = static_cast<size_t>(D + 1); i < base2.size(); i += D + 2) {
        base2[i] *= std::numbers::log2e_v<float>;
      }
      EXPECT_GT(merged_distance(base2, want, heads, D), 3e-2);
    };
    spec.paged = false;
    const StateCase c(spec);
    SCOPED_TRACE(to_string(c.desc()));
    check(c, c.run(nullptr), 1e-4);
    prepare_attention_states(c.desc());
    for (const DecodeConfig& config : candidates(c.desc(), decode_device())) {
      SCOPED_TRACE(to_string(config));
      check(c, c.run(&config), 1e-2);
    }
    spec.paged = true;
    const StateCase paged(spec);
    prepare_paged_states(paged.paged_desc());
    for (const DecodeConfig& config : candidates(paged.paged_desc(), decode_device())) {
      SCOPED_TRACE(to_string(config));
      check(paged, paged.run_paged(config), 1e-2);
    }
  }
}

TEST(States, PagesWantOneOfTwoHeadDims) {
  const StateSpec spec{.head_dim = 256, .keys = {{0, 1}}, .paged = true};
  EXPECT_THROW(choose_paged_states(StateCase(spec).paged_desc(), {}), Error);
}

}  // namespace
}  // namespace braid::cuda::test
