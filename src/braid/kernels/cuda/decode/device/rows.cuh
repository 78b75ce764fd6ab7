#pragma once

#include "braid/kernels/cuda/decode/device/walk.cuh"
#include "braid/kernels/cuda/ptx/mma.h"

// Query rows of an item, outputs, and sums over parts.
namespace braid::cuda {

// Place of an item's query row `row`.
struct QueryRow {
  bool valid;
  int64_t token;
  int32_t head;
  int32_t position;
};

__device__ __forceinline__ QueryRow query_row(const DecodeArgs& a, const SequenceEntry& e,
                                              int kv_head, int row) {
  const int token = e.q_len == 1 ? row >= a.shape.group : row / a.shape.group;
  QueryRow r;
  r.head = kv_head * a.shape.group - a.head_offset + row - token * a.shape.group;
  r.valid = token < e.q_len && r.head >= 0 && r.head < a.num_q_heads;
  r.token = e.q_start + token;
  r.position = e.kv_len - e.q_len + token;
  return r;
}

__device__ __forceinline__ void store_out(const DecodeArgs& a, const QueryRow& r, int head_dim,
                                          int dim, float x) {
  const int64_t at = r.token * a.out_stride + int64_t{r.head} * head_dim + dim;
  if (a.out_f32) {
    static_cast<float*>(a.out)[at] = x;
  } else {
    static_cast<__nv_bfloat16*>(a.out)[at] = __float2bfloat16_rn(x);
  }
}

__device__ __forceinline__ void store_out(const DecodeArgs& a, const QueryRow& r, int head_dim,
                                          int dim, float4 x) {
  const int64_t at = r.token * a.out_stride + int64_t{r.head} * head_dim + dim;
  if (a.out_f32) {
    *reinterpret_cast<float4*>(static_cast<float*>(a.out) + at) = x;
  } else {
    *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(a.out) + at) =
        make_uint2(ptx::pack<__nv_bfloat16>(x.x, x.y), ptx::pack<__nv_bfloat16>(x.z, x.w));
  }
}

// A sum over parts in order; `top` is at least each part's m (units of log2).
struct Merge {
  float top = -INFINITY;
  float l = 0.f;
  float4 o = {0.f, 0.f, 0.f, 0.f};

  __device__ __forceinline__ void add(float part_m, float part_l, const float4& part_o) {
    const float w = part_m == -INFINITY ? 0.f : ptx::exp2_approx(part_m - top);
    l += part_l * w;
    o.x += part_o.x * w;
    o.y += part_o.y * w;
    o.z += part_o.z * w;
    o.w += part_o.w * w;
  }
  // To a top that no later part exceeds, until the next raise; -inf: no key yet.
  __device__ __forceinline__ void raise(float to) {
    const float w = to > top ? ptx::exp2_approx(top - to) : 1.f;
    top = to;
    l *= w;
    o = {o.x * w, o.y * w, o.z * w, o.w * w};
  }
  __device__ __forceinline__ float4 normalized() const {
    const float scale = l > 0.f ? 1.f / l : 0.f;
    return {o.x * scale, o.y * scale, o.z * scale, o.w * scale};
  }
};

// A row's result, four elements from `dim` on.
__device__ __forceinline__ void store_row(const DecodeArgs& a, const QueryRow& r, int head_dim,
                                          int dim, const Merge& sum) {
  store_out(a, r, head_dim, dim, sum.normalized());
}

// The state of a row: O' [D], l, m in base e.
__device__ __forceinline__ float* state_row(const StateArgs& a, const QueryRow& r, int head_dim) {
  return static_cast<float*>(a.out) + (r.token * a.num_q_heads + r.head) * (head_dim + 2);
}
__device__ __forceinline__ void store_sums(float* row, int head_dim, float l, float top) {
  *reinterpret_cast<float2*>(row + head_dim) = {l, top / ptx::kLog2E};
}
__device__ __forceinline__ void store_row(const StateArgs& a, const QueryRow& r, int head_dim,
                                          int dim, const Merge& sum) {
  float* row = state_row(a, r, head_dim);
  *reinterpret_cast<float2*>(row + dim) = {sum.o.x, sum.o.y};
  *reinterpret_cast<float2*>(row + dim + 2) = {sum.o.z, sum.o.w};
  if (dim == 0) store_sums(row, head_dim, sum.l, sum.top);
}

// A piece's item, with units [begin, end); `begin` identifies the item.
struct PieceItem {
  int32_t begin;  // -1: no piece
  int32_t end;
  int32_t s;
  int32_t item;  // tile << 12 | head
};

}  // namespace braid::cuda
