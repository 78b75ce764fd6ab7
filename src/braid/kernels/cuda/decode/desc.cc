#include "braid/kernels/cuda/decode/desc.h"

#include <fmt/format.h>

#include <cmath>

#include "braid/base/error.h"
#include "braid/kernels/cuda/decode/plan.h"

namespace braid::cuda {
namespace {

template <class... Args>
void require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) fail(ErrorCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

// Of capacities: another kernel may have an answer.
template <class... Args>
void require_capacity(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) fail(ErrorCode::kUnsupported, format, std::forward<Args>(args)...);
}

void require_dtype(const char* what, DType dtype, DType a, DType b) {
  if (dtype != a && dtype != b) {
    fail(ErrorCode::kUnsupported, "decode attention: {} is {} ({} or {})", what, name(dtype),
         name(a), name(b));
  }
}

}  // namespace

KvHeads kv_heads_read(const DecodeDesc& d) {
  const auto first = static_cast<int>(d.attrs.head_offset / d.attrs.group);
  const auto last = static_cast<int>((d.num_q_heads - 1 + d.attrs.head_offset) / d.attrs.group);
  return {first, last - first + 1};
}

void verify(const DecodeDesc& d) {
  require_dtype("q", d.q_dtype, DType::bf16, DType::f32);
  require_dtype("the cache", d.cache_dtype, DType::bf16, DType::f16);
  require_dtype("the output", d.out_dtype, DType::bf16, DType::f32);
  const int64_t D = d.attrs.head_dim;
  if (D != 64 && D != 96 && D != 128 && D != 256) {
    fail(ErrorCode::kUnsupported, "decode attention: head dim {} (64, 96, 128 or 256)", D);
  }
  require(d.attrs.group >= 1 && d.attrs.head_offset >= 0,
          "decode attention: group {} (at least 1), head offset {} (at least 0)", d.attrs.group,
          d.attrs.head_offset);
  require(d.num_q_heads >= 1 && d.num_kv_heads >= 1,
          "decode attention: {} query heads, {} KV heads (at least 1)", d.num_q_heads,
          d.num_kv_heads);
  require_capacity(d.num_kv_heads <= kMaxKvHeads, "decode attention: {} KV heads (at most {})",
                   d.num_kv_heads, kMaxKvHeads);
  const KvHeads heads = kv_heads_read(d);
  require(heads.first + heads.count <= d.num_kv_heads,
          "decode attention: {} query heads in groups of {} (offset {}) over {} KV heads",
          d.num_q_heads, d.attrs.group, d.attrs.head_offset, d.num_kv_heads);
  require(d.attrs.scale > 0 && std::isfinite(d.attrs.scale),
          "decode attention: scale {} (positive, finite)", d.attrs.scale);
  require(d.attrs.window >= 0, "decode attention: window {} (0: none)", d.attrs.window);
  require(std::isfinite(d.attrs.softcap), "decode attention: softcap {}", d.attrs.softcap);
  if (d.page_size < 16 || d.page_size > 256) {
    fail(ErrorCode::kUnsupported, "decode attention: page size {} (16..256)", d.page_size);
  }
  require(d.table_stride >= 1, "decode attention: {} pages a sequence (at least 1)",
          d.table_stride);
  require_capacity(d.max_sequences >= 1 && d.max_sequences <= kMaxDecodeSequences,
                   "decode attention: {} sequences (1..{})", d.max_sequences, kMaxDecodeSequences);
  require(d.max_tokens >= 1, "decode attention: {} tokens (at least 1)", d.max_tokens);
  // Keys and units are counted in 32 bits; page numbers come from a multiplication that is exact
  // below 2^24 keys.
  const int64_t keys = int64_t{d.table_stride} * d.page_size;
  require_capacity(keys <= 1 << 24, "decode attention: {} keys a sequence (at most {})", keys,
                   1 << 24);
  const int64_t tiles = d.max_sequences + d.max_tokens * d.attrs.group / kTileRows + 1;
  require_capacity(tiles < 1 << 19,
                   "decode attention: {} tiles of query rows at capacity (at most {})", tiles,
                   1 << 19);
  const int64_t units = tiles * heads.count * (keys / unit_keys(static_cast<int>(D)) + 1);
  require_capacity(units < int64_t{1} << 31,
                   "decode attention: {} units of work at capacity (at most 2^31)", units);
}

std::string to_string(const DecodeDesc& d) {
  std::string out =
      fmt::format("{} S{} T{} Hq{} Hkv{} D{} page{}", name(d.cache_dtype), d.max_sequences,
                  d.max_tokens, d.num_q_heads, d.num_kv_heads, d.attrs.head_dim, d.page_size);
  if (d.attrs.head_offset) out += fmt::format(" offset{}", d.attrs.head_offset);
  if (d.attrs.window) out += fmt::format(" window{}", d.attrs.window);
  if (d.attrs.softcap > 0) out += fmt::format(" softcap{}", d.attrs.softcap);
  return out;
}

}  // namespace braid::cuda
