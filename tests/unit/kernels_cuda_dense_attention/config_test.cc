#include "braid/kernels/cuda/dense_attention/config.h"

#include <gtest/gtest.h>

#include "braid/base/error.h"

namespace braid::cuda {
namespace {

DenseKernel kernel_of(DenseDesc desc) {
  desc.batch = 1;
  return choose(desc).kernel;
}

TEST(DenseAttentionConfig, ByWhatTheCallHas) {
  const DenseDesc flux{.head_dim = 128, .heads = 24, .kv_heads = 24, .queries = 4608, .keys = 4608};
  EXPECT_EQ(kernel_of(flux), DenseKernel::segments);
  DenseDesc d = flux;
  d.dtype = DType::f32;
  EXPECT_EQ(kernel_of(d), DenseKernel::plain);
  d = flux, d.bias = true;
  EXPECT_EQ(kernel_of(d), DenseKernel::plain);
  d = flux, d.key_len = true;
  EXPECT_EQ(kernel_of(d), DenseKernel::plain);
  d = flux, d.head_dim = 80;
  EXPECT_EQ(kernel_of(d), DenseKernel::plain);
  d = flux, d.causal = true, d.q_parts = 2;
  EXPECT_EQ(kernel_of(d), DenseKernel::segments);
}

TEST(DenseAttentionConfig, WideHeadsGoByRows) {
  DenseDesc d{.head_dim = 512, .heads = 1, .kv_heads = 1, .queries = 16384, .keys = 16384};
  EXPECT_EQ(to_string(choose(d)), "4096 rows");
  // Of 262,144 keys with f32 scores a single rank takes 2,048 queries at a time; of four ranks each
  // takes fewer, as its other values are fewer.
  for (const auto& [ranks, rows] : {std::pair{1, 2048}, {2, 1024}, {4, 512}, {8, 256}, {64, 256}}) {
    d.keys = 512 * 512, d.queries = d.keys / ranks;
    const DenseConfig config = choose(d);
    EXPECT_EQ(config.rows, rows) << ranks;
    EXPECT_LT(DenseScratch(d, config).bytes, (int64_t{7} << 29) / std::min(ranks, 8) + (1 << 29));
  }
  d.keys = d.queries = 256 * 256;
  EXPECT_EQ(choose(d).rows, 2048);
  d.gemm = false;
  EXPECT_EQ(choose(d).kernel, DenseKernel::plain);
  d = {.head_dim = 512, .heads = 1, .kv_heads = 1, .queries = 64, .keys = 64};
  EXPECT_EQ(choose(d).kernel, DenseKernel::plain);  // few pairs
  EXPECT_EQ(DenseScratch(d, choose(d)).bytes, 0);
}

TEST(DenseAttentionConfig, ScratchHoldsEachPartApart) {
  const DenseDesc d{.head_dim = 512, .heads = 1, .kv_heads = 1, .queries = 1000, .keys = 1001};
  const DenseConfig config = choose(d);
  const DenseScratch scratch(d, config);
  const int64_t keys = 1008;
  EXPECT_GE(scratch.scores, 2 * 512 * keys);
  EXPECT_GE(scratch.weights - scratch.scores, 4 * config.rows * keys);
  EXPECT_GE(scratch.library - scratch.weights, 2 * config.rows * keys);
}

TEST(DenseAttentionConfig, RefusesByName) {
  const DenseDesc d{.head_dim = 1024, .heads = 2, .kv_heads = 2, .queries = 8, .keys = 8};
  try {
    choose(d);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    EXPECT_EQ(
        std::string(e.what()),
        "dense_attention: no kernel for bf16 B1 H2 of 2 D1024 8 x 8; heads up to 512 in up to "
        "4 parts have one");
  }
}

}  // namespace
}  // namespace braid::cuda
