// Attention over the keys that a GPU holds, against the scalar reference: by the decode kernel, by
// its form for page tables, and by the plain one.
#include <gtest/gtest.h>

#include <cstring>

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

TEST(States, PagesWantOneOfTwoHeadDims) {
  const StateSpec spec{.head_dim = 256, .keys = {{0, 1}}, .paged = true};
  EXPECT_THROW(choose_paged_states(StateCase(spec).paged_desc(), {}), Error);
}

}  // namespace
}  // namespace braid::cuda::test
