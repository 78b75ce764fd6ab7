#pragma once

#include <cuda_bf16.h>

#include "braid/kernels/cuda/attention/plan.h"
#include "braid/kernels/cuda/ptx/mma.h"
#include "braid/kernels/cuda/ptx/tma.h"

// Writes 64 finished rows from wgmma's and mma.sync's accumulators: a thread has two rows, and
// columns 8 j + 2 (lane % 4) + {0, 1} of each row.
namespace braid::cuda {

// Type of queries, keys, values and results in kernels.
template <DType kDType>
using DeviceType = std::conditional_t<kDType == DType::bf16, __nv_bfloat16, __half>;

constexpr float kLn2 = 0.6931471805599453f;

// Memory place of row `row` (0..63) in a unit.
struct OutputRow {
  bool valid;
  int64_t o;      // element index of column 0 in o
  int64_t state;  // in state_o
  int64_t stat;   // in lse, state_l, state_m
};

__device__ inline OutputRow output_row(const AttentionPlan& plan, const ItemUnit& unit, int b,
                                       int head, int row) {
  const QTensor& q = plan.q[unit.segment];
  const int in_unit = row * plan.pack_inverse >> 16;
  const int t = unit.token + in_unit;
  const int64_t h = head + row - in_unit * plan.pack;
  const int64_t outer = q.starts ? 0 : b;
  const int64_t r = unit.row + t;
  OutputRow out;
  out.valid = in_unit < plan.unit_tokens && t < unit.length;
  out.o = outer * q.o_stride.batch + r * q.o_stride.token + h * q.o_stride.head;
  out.state = outer * q.state_stride.batch + r * q.state_stride.token + h * q.state_stride.head;
  out.stat = outer * q.row_stride.batch + r * q.row_stride.token + h * q.row_stride.head;
  return out;
}

// Brings the carried state of row `row` towards L2.
template <int kDv>
__device__ inline void prefetch_state(const AttentionPlan& plan, const ItemUnit& unit, int b,
                                      int head, int row) {
  const OutputRow out = output_row(plan, unit, b, head, row);
  if (!out.valid) return;
  const QTensor& q = plan.q[unit.segment];
  const int bytes = plan.state_bf16 ? 2 : 4;
  ptx::prefetch_l2_bulk(static_cast<const char*>(q.state_o) + out.state * bytes, kDv * bytes);
  ptx::prefetch_l2(q.state_l + out.stat);
  ptx::prefetch_l2(q.state_m + out.stat);
}

// Swaps 4-byte pieces within a quad: lane t receives all 16 bytes of piece t.
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

// Neighbouring lanes swap halves: a lane with columns {2 t, 2 t + 1} in two blocks of 8 gets four
// columns of a row in a single block (even lanes: the first), and back.
__device__ __forceinline__ void pair_exchange(float* low, float* high, int t) {
  const bool odd = t & 1;
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const float got = __shfl_xor_sync(0xffffffff, odd ? low[c] : high[c], 1);
    if (odd) {
      low[c] = got;
    } else {
      high[c] = got;
    }
  }
}

// The carried state of a thread's two rows. `max` holds raw scores (m over the scale). `l` is whole
// in a row's first lane and zero in the other lanes. `o` points to O', null without a row.
struct CarriedRows {
  const char* o[2];
  float l[2];
  float max[2];
};

__device__ __forceinline__ CarriedRows find_state(const AttentionPlan& plan, const ItemUnit& unit,
                                                  int b, int head, int warp, int lane,
                                                  float scale_log2) {
  const QTensor& q = plan.q[unit.segment];
  CarriedRows out;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const OutputRow row = output_row(plan, unit, b, head, warp * 16 + lane / 4 + 8 * r);
    out.o[r] = nullptr;
    out.max[r] = -INFINITY;
    out.l[r] = 0.f;
    if (!row.valid) continue;
    out.o[r] = static_cast<const char*>(q.state_o) + row.state * (plan.state_bf16 ? 2 : 4);
    out.max[r] = q.state_m[row.stat] * (ptx::kLog2E / scale_log2);
    if (lane % 4 == 0) out.l[r] = q.state_l[row.stat];
  }
  __syncwarp();
  return out;
}

// Starts loading O'. Data arrives in memory order, 16 bytes a lane; settle_state later puts loaded
// data in place.
template <int kDv, int kCount>
__device__ __forceinline__ void load_state(const AttentionPlan& plan, const CarriedRows& rows,
                                           int t, float (&o)[kCount]) {
#pragma unroll
  for (int i = 0; i < kDv / 2; ++i) o[i] = 0.f;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (rows.o[r] == nullptr) continue;
    if (plan.state_bf16) {
      const auto* from = reinterpret_cast<const uint4*>(rows.o[r]) + t;
#pragma unroll
      for (int j = 0; j < kDv / 32; ++j) {
        const uint4 x = from[4 * j];
        o[16 * j + 2 * r] = __uint_as_float(x.x);
        o[16 * j + 4 + 2 * r] = __uint_as_float(x.y);
        o[16 * j + 8 + 2 * r] = __uint_as_float(x.z);
        o[16 * j + 12 + 2 * r] = __uint_as_float(x.w);
      }
    } else {
      const auto* from = reinterpret_cast<const float4*>(rows.o[r]) + t % 2 * 2 + t / 2;
#pragma unroll
      for (int j = 0; j < kDv / 16; ++j) {
        const float4 x = from[4 * j];
        o[8 * j + 2 * r] = x.x;
        o[8 * j + 2 * r + 1] = x.y;
        o[8 * j + 4 + 2 * r] = x.z;
        o[8 * j + 4 + 2 * r + 1] = x.w;
      }
    }
  }
  __syncwarp();
}

// Scales a carried O' by alpha. Rows that came without keys may hold anything and are cleared.
template <int kCount>
__device__ __forceinline__ void scale_state(float (&o)[kCount], const float (&alpha)[2],
                                            const bool (&empty)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int r = i / 2 % 2;
    o[i] = empty[r] ? 0.f : o[i] * alpha[r];
  }
}

// Puts a loaded O' in place, scaled by alpha, as a first tile asks. Rows that came without keys may
// hold anything and are cleared.
template <int kDv, int kCount>
__device__ __forceinline__ void settle_state(const AttentionPlan& plan, int lane,
                                             float (&o)[kCount], const float (&alpha)[2],
                                             const bool (&empty)[2]) {
  const int t = lane % 4;
  if (plan.state_bf16) {
#pragma unroll
    for (int j = 0; j < kDv / 32; ++j) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        uint32_t piece[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) piece[i] = __float_as_uint(o[16 * j + 4 * i + 2 * r]);
        quad_transpose(piece, t);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          o[16 * j + 4 * i + 2 * r] = ptx::low_half(piece[i]);
          o[16 * j + 4 * i + 2 * r + 1] = ptx::high_half(piece[i]);
        }
      }
    }
  } else {
#pragma unroll
    for (int j = 0; j < kDv / 16; ++j) {
#pragma unroll
      for (int r = 0; r < 2; ++r) pair_exchange(&o[8 * j + 2 * r], &o[8 * j + 4 + 2 * r], t);
    }
  }
  scale_state(o, alpha, empty);
}

// Rows of 16-bit elements, each times the row's `gain`; `to` is null without a row.
template <class T, int kDv, int kCount>
__device__ __forceinline__ void store_rows(float (&o)[kCount], int t, const float (&gain)[2],
                                           T* (&to)[2]) {
  uint32_t piece[2][kDv / 32][4];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int j = 0; j < kDv / 32; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = &o[16 * j + 4 * i + 2 * r];
        piece[r][j][i] = ptx::pack<T>(pair[0] * gain[r], pair[1] * gain[r]);
      }
      quad_transpose(piece[r][j], t);
    }
  }
  // Branches come last, because diverged lanes shuffle slowly.
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (to[r] == nullptr) continue;
#pragma unroll
    for (int j = 0; j < kDv / 32; ++j) {
      const uint32_t(&x)[4] = piece[r][j];
      *reinterpret_cast<uint4*>(to[r] + 32 * j + 8 * t) = make_uint4(x[0], x[1], x[2], x[3]);
    }
  }
}

// o: unnormalized sums; l: this thread's part of the row sums; m2: row maxima in units of log2
// (equal in a row's four lanes). `warp` is the warp of the 64 rows, 0..3. Without kCarries the call
// finalizes.
template <class T, int kDv, bool kCarries, int kCount>
__device__ __forceinline__ void write_rows(const AttentionPlan& plan, const ItemUnit& unit, int b,
                                           int head, int warp, int lane, float (&o)[kCount],
                                           float (&l)[2], float (&m2)[2]) {
  const QTensor& q = plan.q[unit.segment];
  const int t = lane % 4;
  OutputRow row[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    l[r] += __shfl_xor_sync(0xffffffff, l[r], 1);
    l[r] += __shfl_xor_sync(0xffffffff, l[r], 2);
    row[r] = output_row(plan, unit, b, head, warp * 16 + lane / 4 + 8 * r);
  }
  const bool finalize = !kCarries || plan.finalize;
  if (finalize) {
    const float gain[2] = {l[0] > 0.f ? ptx::reciprocal(l[0]) : 0.f,
                           l[1] > 0.f ? ptx::reciprocal(l[1]) : 0.f};
    T* to[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) to[r] = row[r].valid ? static_cast<T*>(q.o) + row[r].o : nullptr;
    store_rows<T, kDv>(o, t, gain, to);
  } else if (plan.state_bf16) {
    const float gain[2] = {1.f, 1.f};
    __nv_bfloat16* to[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      to[r] = row[r].valid ? static_cast<__nv_bfloat16*>(q.state_o) + row[r].state : nullptr;
    }
    store_rows<__nv_bfloat16, kDv>(o, t, gain, to);
  } else {
#pragma unroll
    for (int j = 0; j < kDv / 16; ++j) {
#pragma unroll
      for (int r = 0; r < 2; ++r) pair_exchange(&o[8 * j + 2 * r], &o[8 * j + 4 + 2 * r], t);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (!row[r].valid) continue;
      float* to = static_cast<float*>(q.state_o) + row[r].state + t % 2 * 8 + t / 2 * 4;
#pragma unroll
      for (int j = 0; j < kDv / 16; ++j) {
        *reinterpret_cast<float4*>(to + 16 * j) = make_float4(
            o[8 * j + 2 * r], o[8 * j + 2 * r + 1], o[8 * j + 4 + 2 * r], o[8 * j + 4 + 2 * r + 1]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (!row[r].valid || t != 0) continue;
    if (!finalize) {
      q.state_l[row[r].stat] = l[r];
      q.state_m[row[r].stat] = m2[r] == -INFINITY ? -INFINITY : m2[r] * kLn2;
    } else if (q.lse != nullptr) {
      q.lse[row[r].stat] = l[r] > 0.f ? m2[r] * kLn2 + logf(l[r]) : -INFINITY;
    }
  }
  __syncwarp();
}

// Columns [column, column + 8) of a row; `l` is the whole row's sum. The thread with column 0
// writes per-row values.
template <class T>
__device__ inline void write_piece(const AttentionPlan& plan, const ItemUnit& unit, int b, int head,
                                   int row, int column, const float (&o)[8], float l, float m2) {
  const QTensor& q = plan.q[unit.segment];
  const OutputRow at = output_row(plan, unit, b, head, row);
  if (!at.valid) return;
  if (plan.finalize) {
    const float inverse = l > 0.f ? 1.f / l : 0.f;
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pairs[i] = ptx::pack<T>(o[2 * i] * inverse, o[2 * i + 1] * inverse);
    }
    *reinterpret_cast<uint4*>(static_cast<T*>(q.o) + at.o + column) =
        make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    if (column == 0 && q.lse) q.lse[at.stat] = l > 0.f ? m2 * kLn2 + logf(l) : -INFINITY;
    return;
  }
  if (column == 0) {
    q.state_l[at.stat] = l;
    q.state_m[at.stat] = m2 == -INFINITY ? -INFINITY : m2 * kLn2;
  }
  if (plan.state_bf16) {
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = ptx::pack<__nv_bfloat16>(o[2 * i], o[2 * i + 1]);
    *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(q.state_o) + at.state + column) =
        make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  } else {
    auto* to = reinterpret_cast<float4*>(static_cast<float*>(q.state_o) + at.state + column);
    to[0] = make_float4(o[0], o[1], o[2], o[3]);
    to[1] = make_float4(o[4], o[5], o[6], o[7]);
  }
}

}  // namespace braid::cuda
