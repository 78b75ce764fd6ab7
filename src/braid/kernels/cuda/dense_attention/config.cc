#include "braid/kernels/cuda/dense_attention/config.h"

#include <algorithm>
#include <array>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::cuda {
namespace {

constexpr std::array<int64_t, 4> kSegmentHeads = {64, 96, 128, 256};
constexpr int kMostSegments = 16;
constexpr int64_t kAlignment = 256;
constexpr int64_t kLibraryScratch = int64_t{32} << 20;
// Bytes of f32 scores at a time: at least kLeastScores, and kScoresOfQuery for each query. Values
// behind the attention in a decoder take ten times as much for each query.
constexpr int64_t kLeastScores = int64_t{1} << 28;
constexpr int64_t kScoresOfQuery = 8 << 10;

int64_t length(TypeList parts, int64_t batch) {
  int64_t rows = 0;
  for (const ValueType& part : parts) rows += part.shape[0] / batch;
  return rows;
}

bool half(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16;
}

// Score rows begin at multiples of 16 bytes in either type.
int64_t padded_keys(const DenseDesc& d) {
  return round_up(d.keys, 8);
}

bool takes_segments(const DenseDesc& d) {
  return half(d.dtype) && std::ranges::count(kSegmentHeads, d.head_dim) > 0 && !d.bias &&
         !d.key_len && d.q_parts <= kMostSegments && d.kv_parts <= kMostSegments &&
         std::max(d.queries, d.keys) < (1 << 28);
}

bool takes_rows(const DenseDesc& d) {
  constexpr int64_t kFewPairs = 1 << 16;  // the plain kernel is a single launch
  return d.gemm && d.dtype == DType::bf16 && d.head_dim % 8 == 0 && d.head_dim > 256 && !d.bias &&
         !d.key_len && !d.causal && d.q_parts == 1 && d.kv_parts == 1 && d.heads == 1 &&
         d.queries * d.keys > kFewPairs;
}

}  // namespace

DenseDesc dense_desc(const ops::DenseAttentionAttrs& a, TypeList in) {
  const TypeList q = in.first(a.first_key());
  const TypeList k = in.subspan(a.first_key(), a.kv_parts);
  return {.dtype = q[0].dtype,
          .head_dim = a.head_dim,
          .batch = a.batch,
          .heads = q[0].shape[1] / a.head_dim,
          .kv_heads = k[0].shape[1] / a.head_dim,
          .queries = length(q, a.batch),
          .keys = length(k, a.batch),
          .q_parts = a.q_parts,
          .kv_parts = a.kv_parts,
          .causal = a.causal,
          .bias = in[a.bias()].shape.rank() != 0,
          .key_len = in[a.key_len()].shape.rank() != 0};
}

DenseConfig choose(const DenseDesc& d) {
  if (takes_segments(d)) return {.kernel = DenseKernel::segments};
  if (takes_rows(d)) {
    // As many queries as fill the GPU with tiles of the second product, if the scores have room.
    const int64_t bytes = std::max(kLeastScores, kScoresOfQuery * d.queries);
    const int64_t room = std::max<int64_t>(bytes / (4 * padded_keys(d)) / 128 * 128, 128);
    return {.kernel = DenseKernel::rows, .rows = std::min({room, d.queries, int64_t{4096}})};
  }
  const bool plain = (half(d.dtype) || d.dtype == DType::f32) && d.head_dim <= kMostPlainHead &&
                     std::max(d.q_parts, d.kv_parts) <= kMostDenseParts && d.heads <= 65535 &&
                     d.batch <= 65535;
  if (!plain) {
    fail(ErrorCode::kUnsupported,
         "dense_attention: no kernel for {}; heads up to {} in up to {} parts have one",
         to_string(d), kMostPlainHead, kMostDenseParts);
  }
  return {};
}

DenseScratch::DenseScratch(const DenseDesc& d, const DenseConfig& config) {
  if (config.kernel != DenseKernel::rows) return;
  const int64_t keys = padded_keys(d);
  scores = round_up(2 * d.head_dim * keys, kAlignment);
  weights = scores + round_up(4 * config.rows * keys, kAlignment);
  library = weights + round_up(2 * config.rows * keys, kAlignment);
  bytes = library + kLibraryScratch;
}

std::string to_string(const DenseDesc& d) {
  return fmt::format("{} B{} H{} of {} D{} {} x {}{}{}{}", name(d.dtype), d.batch, d.heads,
                     d.kv_heads, d.head_dim, d.queries, d.keys, d.causal ? " causal" : "",
                     d.bias ? " bias" : "", d.key_len ? " key_len" : "");
}

std::string to_string(const DenseConfig& config) {
  switch (config.kernel) {
    case DenseKernel::segments:
      return "segments";
    case DenseKernel::rows:
      return fmt::format("{} rows", config.rows);
    case DenseKernel::plain:
      break;
  }
  return "plain";
}

}  // namespace braid::cuda
