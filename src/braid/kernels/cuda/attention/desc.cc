#include "braid/kernels/cuda/attention/desc.h"

#include <fmt/format.h>

#include <cmath>

#include "braid/base/error.h"

namespace braid::cuda {
namespace {

template <class... Args>
void require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) fail(ErrorCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

void verify_desc(const AttentionDesc& d) {
  if (d.dtype != DType::bf16 && d.dtype != DType::f16) {
    fail(ErrorCode::kUnsupported, "attention: dtype {} (bf16 or f16)", name(d.dtype));
  }
  if (d.state_dtype != DType::f32 && d.state_dtype != DType::bf16) {
    fail(ErrorCode::kUnsupported, "attention: state dtype {} (f32 or bf16)", name(d.state_dtype));
  }
  const int qk = d.head_dim_qk;
  const int v = d.head_dim_v;
  const bool square = (qk == 64 || qk == 96 || qk == 128 || qk == 256) && v == qk;
  if (!square && !(qk == 192 && v == 128)) {
    fail(ErrorCode::kUnsupported,
         "attention: head dims {} / {} (64, 96, 128, 256 for both, or 192 / 128)", qk, v);
  }
  require(d.batch >= 1, "attention: batch {} (at least 1)", d.batch);
  require(d.num_kv_heads >= 1 && d.num_q_heads >= 1 && d.num_q_heads % d.num_kv_heads == 0,
          "attention: {} query heads over {} KV heads (a multiple)", d.num_q_heads, d.num_kv_heads);
  require(d.scale > 0 && std::isfinite(d.scale), "attention: scale {} (positive, finite)", d.scale);
  require(d.window_left >= kUnlimited, "attention: window_left {} (-1 or more)", d.window_left);
  require(d.window_right >= kUnlimited, "attention: window_right {} (-1 or more)", d.window_right);
  if (d.page_size != 0 && (d.page_size < 16 || d.page_size > 256)) {
    fail(ErrorCode::kUnsupported, "attention: page size {} (0 or 16..256)", d.page_size);
  }
}

void verify_strides(const char* what, size_t i, const void* data, const Strides& s) {
  require(data != nullptr, "attention: {} of segment {} is null", what, i);
  require(reinterpret_cast<uintptr_t>(data) % 16 == 0,
          "attention: {} of segment {} is not 16-byte aligned", what, i);
  for (int64_t stride : {s.batch, s.token, s.head}) {
    require(stride >= 0 && stride % 8 == 0,
            "attention: {} of segment {} has stride {} (a multiple of 8 elements)", what, i,
            stride);
  }
}

// Positions and lengths stay well inside int32: sums of three do not overflow.
constexpr int32_t kMaxPosition = 1 << 28;

void verify_q(const AttentionDesc& d, const QTensor& s, size_t i, size_t num_kv) {
  require(s.length >= 0 && s.length <= kMaxPosition, "attention: length {} of Q segment {}",
          s.length, i);
  require(std::abs(s.offset) <= kMaxPosition, "attention: offset {} of Q segment {}", s.offset, i);
  require(0 <= s.kv_begin && s.kv_begin <= s.kv_end && s.kv_end <= static_cast<int>(num_kv),
          "attention: Q segment {} sees KV segments [{}, {}) of {}", i, s.kv_begin, s.kv_end,
          num_kv);
  if (s.length == 0) return;
  require(s.starts == nullptr || s.rows > 0, "attention: Q segment {} has starts and {} rows", i,
          s.rows);
  verify_strides("q", i, s.q, s.q_stride);
  if (d.finalize) verify_strides("o", i, s.o, s.o_stride);
  if (d.load_state || !d.finalize) {
    verify_strides("state_o", i, s.state_o, s.state_stride);
    require(s.state_l != nullptr && s.state_m != nullptr,
            "attention: Q segment {} carries state and state_l or state_m is null", i);
  }
}

void verify_kv(const AttentionDesc& d, const KvTensor& s, size_t i) {
  require(s.length >= 0 && s.length <= kMaxPosition, "attention: length {} of KV segment {}",
          s.length, i);
  require(std::abs(s.offset) <= kMaxPosition, "attention: offset {} of KV segment {}", s.offset, i);
  if (s.length == 0) return;
  verify_strides("k", i, s.k, s.k_stride);
  verify_strides("v", i, s.v, s.v_stride);
  if (d.page_size == 0) return;
  require(s.page_table != nullptr && s.num_pages > 0,
          "attention: paged KV segment {} has no page table or no pages", i);
  require(int64_t{s.page_table_stride} * d.page_size >= s.length,
          "attention: KV segment {} of {} keys over {} pages of {}", i, s.length,
          s.page_table_stride, d.page_size);
}

void verify_arrivals(const AttentionDesc& d, const AttentionParams& params) {
  bool device_lengths = false;
  for (const QTensor& q : params.q) device_lengths |= q.starts || q.offsets;
  for (const KvTensor& kv : params.kv) device_lengths |= kv.lengths != nullptr;
  require(!carries_state(d) && d.page_size == 0 && !device_lengths,
          "attention: keys arrive in {} stages (only in calls without a carried state, without "
          "pages and of lengths that the host knows)",
          params.kv.back().stage + 1);
}

}  // namespace

void verify(const AttentionDesc& desc, const AttentionParams& params) {
  verify_desc(desc);
  require(params.q.size() <= kMaxQSegments, "attention: {} Q segments (at most {})",
          params.q.size(), kMaxQSegments);
  require(params.kv.size() <= kMaxKvSegments, "attention: {} KV segments (at most {})",
          params.kv.size(), kMaxKvSegments);
  for (size_t i = 0; i < params.q.size(); ++i) verify_q(desc, params.q[i], i, params.kv.size());
  for (size_t i = 0; i < params.kv.size(); ++i) {
    verify_kv(desc, params.kv[i], i);
    const int32_t before = i > 0 ? params.kv[i - 1].stage : 0;
    require(params.kv[i].stage >= before, "attention: stage {} of KV segment {} after stage {}",
            params.kv[i].stage, i, before);
  }
  const int32_t last = params.kv.empty() ? 0 : params.kv.back().stage;
  for (size_t i = 0; i < params.q.size(); ++i) {
    require(0 <= params.q[i].stage && params.q[i].stage <= last,
            "attention: stage {} of Q segment {} (KV segments arrive in stages 0 to {})",
            params.q[i].stage, i, last);
  }
  if (keys_arrive(params)) verify_arrivals(desc, params);
}

bool carries_state(const AttentionDesc& desc) {
  return desc.load_state || !desc.finalize;
}

bool keys_arrive(const AttentionParams& params) {
  return !params.kv.empty() && params.kv.back().stage > 0;
}

std::string to_string(const AttentionDesc& d) {
  std::string mask = d.window_left == kUnlimited && d.window_right == kUnlimited ? "full"
                     : d.window_left == kUnlimited && d.window_right == 0
                         ? "causal"
                         : fmt::format("window({}, {})", d.window_left, d.window_right);
  if (d.page_size) mask += fmt::format(" paged{}", d.page_size);
  if (d.load_state) mask += fmt::format(" load({})", name(d.state_dtype));
  if (!d.finalize) mask += fmt::format(" carry({})", name(d.state_dtype));
  const std::string dim = d.head_dim_qk == d.head_dim_v
                              ? fmt::format("D{}", d.head_dim_qk)
                              : fmt::format("D{}/{}", d.head_dim_qk, d.head_dim_v);
  return fmt::format("{} B{} Hq{} Hkv{} {} {}", name(d.dtype), d.batch, d.num_q_heads,
                     d.num_kv_heads, dim, mask);
}

}  // namespace braid::cuda
