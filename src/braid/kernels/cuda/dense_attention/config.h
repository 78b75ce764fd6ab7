#pragma once

#include <string>

#include "braid/ops/dense_attention.h"

// Which kernel computes attention without a cache: desc -> config. Pure host code.
namespace braid::cuda {

struct DenseDesc {
  DType dtype = DType::bf16;  // of queries, keys and values
  int64_t head_dim = 0;
  int64_t batch = 1;
  int64_t heads = 0, kv_heads = 0;
  int64_t queries = 0, keys = 0;  // of a sequence
  int q_parts = 1, kv_parts = 1;
  bool causal = false;
  bool bias = false;
  bool key_len = false;
  bool gemm = true;  // the machine has the library of products
  bool operator==(const DenseDesc&) const = default;
};

enum class DenseKernel : uint8_t {
  segments,  // segment attention (kernels/cuda/attention): bf16 or f16, heads of 64, 96, 128, 256
  rows,      // two products by the library and a softmax for some queries at a time: wide heads
  plain,     // f32 sums without tensor cores: everything else
};

struct DenseConfig {
  DenseKernel kernel = DenseKernel::plain;
  int64_t rows = 0;  // of `rows`: queries at a time
  bool operator==(const DenseConfig&) const = default;
};

constexpr int kMostDenseParts = 4;       // of the plain kernel
constexpr int64_t kMostPlainHead = 512;  // likewise

DenseDesc dense_desc(const ops::DenseAttentionAttrs& attrs, TypeList in);

// Fails with kUnsupported, naming the desc, without a kernel for the call.
DenseConfig choose(const DenseDesc& desc);

// Scratch with `rows`: transposed values, scores for the queries at a time, and their weights.
struct DenseScratch {
  explicit DenseScratch(const DenseDesc& desc, const DenseConfig& config);
  int64_t scores = 0;   // f32 [rows, keys up to a multiple of 8]
  int64_t weights = 0;  // bf16, the same shape
  int64_t library = 0;
  int64_t bytes = 0;  // in all; values come first: bf16 [head_dim, keys up to a multiple of 8]
};

std::string to_string(const DenseDesc& desc);      // "bf16 B1 H24 of 24 D128 4608 x 4608"
std::string to_string(const DenseConfig& config);  // "segments", "1024 rows", "plain"

}  // namespace braid::cuda
