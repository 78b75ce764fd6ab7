#include "braid/kernels/cuda/decode/device/plain_segments.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/kernels/cuda/decode/device/plain.cuh"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda {
namespace {

struct Args {
  QTensor q[kMaxQSegments];
  KvTensor kv[kMaxKvSegments];
  int num_q;
  int heads;
  int group;
  int head_dim;
  float scale;
  int window_left;
  int window_right;
  bool load_state;
  bool finalize;
};

__device__ inline int64_t at(const Strides& s, int b, int row, int head) {
  return b * s.batch + row * s.token + head * s.head;
}

template <class T>
__global__ __launch_bounds__(kPlainLanes* kPlainWarps) void plain_segments_kernel(
    const __grid_constant__ Args a) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  const int lane = static_cast<int>(threadIdx.x) % kPlainLanes;
  const int head =
      static_cast<int>(blockIdx.y) * kPlainWarps + static_cast<int>(threadIdx.x) / kPlainLanes;
  const int b = static_cast<int>(blockIdx.z);
  if (head >= a.heads) return;
  int row = static_cast<int>(blockIdx.x);
  int segment = 0;
  while (row >= a.q[segment].length) row -= a.q[segment++].length;
  const QTensor& s = a.q[segment];
  const int D = a.head_dim;
  const int position = s.offset + row;
  const int64_t stat = at(s.row_stride, b, row, head);

  const T* q_row = static_cast<const T*>(s.q) + at(s.q_stride, b, row, head);
  float* state = static_cast<float*>(s.state_o) + at(s.state_stride, b, row, head);
  PlainQuery query;
#pragma unroll
  for (int i = 0; i < PlainQuery::kEach; ++i) {
    const int d = lane + i * kPlainLanes;
    query.q[i] = d < D ? to_float(q_row[d]) : 0.f;
    query.sum[i] = d < D && a.load_state ? state[d] : 0.f;
  }
  if (a.load_state) {
    query.m = s.state_m[stat];
    query.l = s.state_l[stat];
  }
  for (int i = s.kv_begin; i < s.kv_end; ++i) {
    const KvTensor& kv = a.kv[i];
    const int own = position - kv.offset;  // the query's place among the keys
    const int end =
        a.window_right < 0 ? kv.length : min(kv.length, max(0, own + a.window_right + 1));
    const int begin = a.window_left < 0 ? 0 : max(0, own - a.window_left);
    for (int j = begin; j < end; ++j) {
      const T* k = static_cast<const T*>(kv.k) + at(kv.k_stride, b, j, head / a.group);
      const T* v = static_cast<const T*>(kv.v) + at(kv.v_stride, b, j, head / a.group);
      query.add(a.scale * query.dot(k, D, lane), v, D, lane);
    }
  }
  if (a.finalize) {
    T* out = static_cast<T*>(s.o) + at(s.o_stride, b, row, head);
#pragma unroll
    for (int i = 0; i < PlainQuery::kEach; ++i) {
      const int d = lane + i * kPlainLanes;
      if (d < D) out[d] = T(query.l > 0.f ? query.sum[i] / query.l : 0.f);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < PlainQuery::kEach; ++i) {
    const int d = lane + i * kPlainLanes;
    if (d < D) state[d] = query.sum[i];
  }
  if (lane == 0) {
    s.state_m[stat] = query.m;
    s.state_l[stat] = query.l;
  }
}

// Hands the dtype's kernel to `use`.
template <class Use>
void with_kernel(DType dtype, Use use) {
  if (dtype == DType::bf16) return use(plain_segments_kernel<__nv_bfloat16>);
  if (dtype == DType::f16) return use(plain_segments_kernel<__half>);
  use(plain_segments_kernel<float>);
}

}  // namespace

void verify_plain_segments(const AttentionDesc& d) {
  if (d.dtype != DType::bf16 && d.dtype != DType::f16 && d.dtype != DType::f32) {
    fail(ErrorCode::kUnsupported, "plain segment attention of {} (bf16, f16, f32)", name(d.dtype));
  }
  if (d.head_dim_qk != d.head_dim_v || d.head_dim_qk < 1 || d.head_dim_qk > kMaxPlainHeadDim) {
    fail(ErrorCode::kUnsupported,
         "plain segment attention with head dims {} / {} (both the same, at most {})",
         d.head_dim_qk, d.head_dim_v, kMaxPlainHeadDim);
  }
  if (d.page_size != 0 || d.state_dtype != DType::f32) {
    fail(ErrorCode::kUnsupported,
         "plain segment attention over pages of {} with a state of {} (contiguous keys, f32)",
         d.page_size, name(d.state_dtype));
  }
  if (d.num_kv_heads < 1 || d.num_q_heads < 1 || d.num_q_heads % d.num_kv_heads != 0) {
    fail(ErrorCode::kInvalidArgument,
         "plain segment attention: {} query heads over {} KV heads (a multiple)", d.num_q_heads,
         d.num_kv_heads);
  }
}

void load_plain_segments(DType dtype) {
  with_kernel(dtype, [](auto kernel) { load_kernel(kernel); });
}

void plain_segments(const AttentionDesc& d, const AttentionParams& params, LaunchContext context) {
  verify_plain_segments(d);
  if (params.q.size() > kMaxQSegments || params.kv.size() > kMaxKvSegments) {
    fail(ErrorCode::kInvalidArgument,
         "plain segment attention: {} Q segments (at most {}) and {} KV segments (at most {})",
         params.q.size(), kMaxQSegments, params.kv.size(), kMaxKvSegments);
  }
  const auto ragged = [](const QTensor& s) { return s.starts || s.offsets || s.lse; };
  const auto short_keys = [](const KvTensor& s) { return s.lengths != nullptr; };
  if (std::ranges::any_of(params.q, ragged) || std::ranges::any_of(params.kv, short_keys)) {
    fail(ErrorCode::kUnsupported,
         "plain segment attention: a segment with starts, offsets, lse or lengths (none)");
  }
  Args args{.num_q = static_cast<int>(params.q.size()),
            .heads = d.num_q_heads,
            .group = d.num_q_heads / d.num_kv_heads,
            .head_dim = d.head_dim_qk,
            .scale = d.scale,
            .window_left = d.window_left,
            .window_right = d.window_right,
            .load_state = d.load_state,
            .finalize = d.finalize};
  std::ranges::copy(params.q, args.q);
  std::ranges::copy(params.kv, args.kv);
  int64_t rows = 0;
  for (const QTensor& s : params.q) rows += s.length;
  if (rows == 0 || d.batch == 0) return;
  const dim3 grid(static_cast<unsigned>(rows),
                  static_cast<unsigned>((d.num_q_heads + kPlainWarps - 1) / kPlainWarps),
                  static_cast<unsigned>(d.batch));
  with_kernel(d.dtype, [&](auto kernel) {
    launch_kernel(context, kernel, grid, dim3(kPlainLanes * kPlainWarps), 0, args);
  });
}

}  // namespace braid::cuda
