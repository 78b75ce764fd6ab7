#pragma once

#include <cuda_bf16.h>

#include "braid/kernels/cuda/attention/plan.h"
#include "braid/kernels/cuda/ptx/mma.h"
#include "braid/kernels/cuda/ptx/tma.h"

// What happens to 64 finished rows, held as wgmma and mma.sync hold accumulators: a thread has two
// rows, and columns 8 j + 2 (lane % 4) + {0, 1} of each.
namespace braid::cuda {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

// Where row `row` (0..63) of an item's 64 rows starting at token `token` lives.
struct OutputRow {
  bool valid;
  int64_t o;      // element index of column 0 in o
  int64_t state;  // in state_o
  int64_t stat;   // in lse, state_l, state_m
};

__device__ inline OutputRow output_row(const AttentionPlan& plan, const WorkItem& item, int token,
                                       int row) {
  const QSegment& q = plan.q[item.segment];
  const int in_unit = row / plan.pack;
  const int t = token + in_unit;
  const int64_t head = item.head + row - in_unit * plan.pack;
  const int64_t b = q.starts ? 0 : item.b;
  const int64_t r = item.row + t;
  OutputRow out;
  out.valid = in_unit < plan.unit_tokens && t < item.length;
  out.o = b * q.o_stride.batch + r * q.o_stride.token + head * q.o_stride.head;
  out.state = b * q.state_stride.batch + r * q.state_stride.token + head * q.state_stride.head;
  out.stat = b * q.row_stride.batch + r * q.row_stride.token + head * q.row_stride.head;
  return out;
}

// Brings the carried state of 64 rows towards L2; called when an item begins.
template <int kDv>
__device__ inline void prefetch_state(const AttentionPlan& plan, const WorkItem& item, int token,
                                      int thread) {
  const QSegment& q = plan.q[item.segment];
  const int bytes = plan.state_bf16 ? 2 : 4;
  const OutputRow row = output_row(plan, item, token, thread / 2);
  if (!row.valid) return;
  const char* base = static_cast<const char*>(q.state_o) + row.state * bytes;
  for (int i = thread % 2 * 128; i < kDv * bytes; i += 256) ptx::prefetch_l2(base + i);
}

// Swaps 4-byte pieces within a quad, so that lane t holds all of piece t's 16 bytes:
// in: piece[j] is this lane's 4 bytes of 16-byte unit j; out: the 16 bytes of unit `lane % 4`.
__device__ inline void quad_transpose(uint32_t (&piece)[4], int t) {
  const bool odd = t & 1;
  const bool high = t & 2;
  // 2 x 2 blocks first, then the blocks themselves.
  uint32_t send0 = odd ? piece[0] : piece[1];
  uint32_t send1 = odd ? piece[2] : piece[3];
  send0 = __shfl_xor_sync(0xffffffff, send0, 1);
  send1 = __shfl_xor_sync(0xffffffff, send1, 1);
  if (odd) {
    piece[0] = send0;
    piece[2] = send1;
  } else {
    piece[1] = send0;
    piece[3] = send1;
  }
  send0 = high ? piece[0] : piece[2];
  send1 = high ? piece[1] : piece[3];
  send0 = __shfl_xor_sync(0xffffffff, send0, 2);
  send1 = __shfl_xor_sync(0xffffffff, send1, 2);
  if (high) {
    piece[0] = send0;
    piece[1] = send1;
  } else {
    piece[2] = send0;
    piece[3] = send1;
  }
}

template <int kDv, int kCount>
__device__ inline void merge_state(const AttentionPlan& plan, const QSegment& q,
                                   const OutputRow& row, int r, int t, float (&o)[kCount], float& l,
                                   float& m2) {
  const float old_m2 = q.state_m[row.stat] * kLog2E;
  const float merged = fmaxf(m2, old_m2);
  const float base = merged == -INFINITY ? 0.f : merged;
  const float alpha = exp2f(m2 - base);
  const float beta = exp2f(old_m2 - base);
  l = l * alpha + q.state_l[row.stat] * beta;
  m2 = merged;
#pragma unroll
  for (int j = 0; j < kDv / 8; ++j) {
    float2 old;
    const int64_t at = row.state + 8 * j + 2 * t;
    if (plan.state_bf16) {
      old = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(
          static_cast<const __nv_bfloat16*>(q.state_o) + at));
    } else {
      old = *reinterpret_cast<const float2*>(static_cast<const float*>(q.state_o) + at);
    }
    // A state without keys contributes nothing, whatever its O' holds.
    if (beta == 0.f) old = make_float2(0.f, 0.f);
    o[4 * j + 2 * r] = o[4 * j + 2 * r] * alpha + old.x * beta;
    o[4 * j + 2 * r + 1] = o[4 * j + 2 * r + 1] * alpha + old.y * beta;
  }
}

// o: unnormalized sums; l: this thread's part of the row sums; m2: row maxima in units of log2
// (the same in the four lanes of a row). `warp` is the warp of the 64 rows, 0..3.
template <class T, int kDv, int kCount>
__device__ inline void write_rows(const AttentionPlan& plan, const WorkItem& item, int token,
                                  int warp, int lane, float (&o)[kCount], float (&l)[2],
                                  float (&m2)[2]) {
  const QSegment& q = plan.q[item.segment];
  const int t = lane % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    l[r] += __shfl_xor_sync(0xffffffff, l[r], 1);
    l[r] += __shfl_xor_sync(0xffffffff, l[r], 2);
    const OutputRow row = output_row(plan, item, token, warp * 16 + lane / 4 + 8 * r);
    if (plan.load_state && row.valid) merge_state<kDv>(plan, q, row, r, t, o, l[r], m2[r]);
    __syncwarp();  // all lanes of a row have read its l and m before one writes them
    if (plan.finalize) {
      const float inverse = l[r] > 0.f ? 1.f / l[r] : 0.f;
      if (row.valid && t == 0 && q.lse) {
        q.lse[row.stat] = l[r] > 0.f ? m2[r] * kLn2 + logf(l[r]) : -INFINITY;
      }
#pragma unroll
      for (int j = 0; j < kDv / 32; ++j) {
        uint32_t piece[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* pair = &o[16 * j + 4 * i + 2 * r];
          piece[i] = ptx::pack<T>(pair[0] * inverse, pair[1] * inverse);
        }
        quad_transpose(piece, t);
        if (row.valid) {
          *reinterpret_cast<uint4*>(static_cast<T*>(q.o) + row.o + 32 * j + 8 * t) =
              make_uint4(piece[0], piece[1], piece[2], piece[3]);
        }
      }
      continue;
    }
    if (!row.valid) continue;
    if (t == 0) {
      q.state_l[row.stat] = l[r];
      q.state_m[row.stat] = m2[r] == -INFINITY ? -INFINITY : m2[r] * kLn2;
    }
#pragma unroll
    for (int j = 0; j < kDv / 8; ++j) {
      const int64_t at = row.state + 8 * j + 2 * t;
      const float x = o[4 * j + 2 * r];
      const float y = o[4 * j + 2 * r + 1];
      if (plan.state_bf16) {
        *reinterpret_cast<uint32_t*>(static_cast<__nv_bfloat16*>(q.state_o) + at) =
            ptx::pack<__nv_bfloat16>(x, y);
      } else {
        *reinterpret_cast<float2*>(static_cast<float*>(q.state_o) + at) = make_float2(x, y);
      }
    }
  }
}

// A row of an item that sees no key: what is carried passes through, else zeros.
template <class T, int kDv>
__device__ inline void write_empty_row(const AttentionPlan& plan, const WorkItem& item, int token,
                                       int row) {
  const QSegment& q = plan.q[item.segment];
  const OutputRow out = output_row(plan, item, token, row);
  if (!out.valid || (plan.load_state && !plan.finalize)) return;
  const float l = plan.load_state ? q.state_l[out.stat] : 0.f;
  const float inverse = l > 0.f ? 1.f / l : 0.f;
  if (!plan.finalize) {
    q.state_l[out.stat] = 0.f;
    q.state_m[out.stat] = -INFINITY;
  } else if (q.lse) {
    q.lse[out.stat] = l > 0.f ? q.state_m[out.stat] + logf(l) : -INFINITY;
  }
  for (int i = 0; i < kDv; ++i) {
    const auto* half = static_cast<const __nv_bfloat16*>(q.state_o) + out.state + i;
    const auto* full = static_cast<const float*>(q.state_o) + out.state + i;
    const float x = inverse > 0.f ? inverse * (plan.state_bf16 ? float(*half) : *full) : 0.f;
    if (plan.finalize) {
      static_cast<T*>(q.o)[out.o + i] = T(x);
    } else if (plan.state_bf16) {
      *const_cast<__nv_bfloat16*>(half) = __nv_bfloat16(x);
    } else {
      *const_cast<float*>(full) = x;
    }
  }
}

}  // namespace braid::cuda
