#pragma once

#include "braid/kernels/cuda/fused_attention/device/fused_ring.cuh"
#include "braid/kernels/cuda/ptx/mma.h"

// Attention of a CTA's key units for all query heads of a KV head, by FMA. kD: elements of a head
// on the CTA. A lane has eight columns of a row, neighbouring lanes have the row's other columns,
// further lanes other keys.
namespace braid::cuda {

__device__ inline void unpack_bf16x8(const uint4& x, float (&f)[8]) {
  f[0] = ptx::low_half(x.x), f[1] = ptx::high_half(x.x);
  f[2] = ptx::low_half(x.y), f[3] = ptx::high_half(x.y);
  f[4] = ptx::low_half(x.z), f[5] = ptx::high_half(x.z);
  f[6] = ptx::low_half(x.w), f[7] = ptx::high_half(x.w);
}

template <int kD, int kGroup>
class FusedAttend {
  static constexpr int kKeys = relay_keys(kD);   // in a unit
  static constexpr int kLanes = kD / 8;          // for a key's row
  static constexpr int kTogether = 32 / kLanes;  // keys of a warp's read
  static constexpr int kSteps = kKeys / kTogether;
  static constexpr int kPieceRow = kD + 4;

 public:
  // q f32, with the scale, `stride` elements from head to head; heads past `group` are zeros.
  __device__ FusedAttend(const float* q, int stride, int group)
      : lane_(threadIdx.x % 32), group_(group) {
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        q_[g][j] = g < group ? q[g * stride + lane_ % kLanes * 8 + j] : 0.f;
        o_[g][j] = 0;
      }
      max_[g] = -INFINITY;
      sum_[g] = 0;
    }
  }

  // Takes in the unit with first key `first`: cached K and V in `slot`; the newest key and value,
  // perhaps not yet in memory, in `fresh` [2, D].
  __device__ void add(const uint8_t* slot, const uint8_t* fresh, int first, const RelayKeys& keys) {
    float p[kSteps][kGroup];
    score(slot, fresh, keys.length - 1 - first, p);
    weigh(slot, fresh + kD * 2, first, keys, p);
  }

  // The same in two parts, if each CTA has some elements of the head: scores over these elements to
  // [group, keys], later the scores over all elements from there.
  __device__ void put_scores(const uint8_t* slot, const uint8_t* fresh_k, int stored, float* to) {
    float p[kSteps][kGroup];
    score(slot, fresh_k, stored, p);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        if (lane_ % kLanes == 0 && g < group_) to[g * kKeys + key_of(i)] = p[i][g];
      }
    }
  }
  __device__ void add_scored(const float* from, const uint8_t* slot, const uint8_t* fresh_v,
                             int first, const RelayKeys& keys) {
    float p[kSteps][kGroup];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
#pragma unroll
      for (int g = 0; g < kGroup; ++g) p[i][g] = g < group_ ? from[g * kKeys + key_of(i)] : 0.f;
    }
    weigh(slot, fresh_v, first, keys, p);
  }

  // Stores this warp's sums: [group, D + 4] of O', m and l.
  __device__ void put(float* piece) {
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
#pragma unroll
      for (int d = kLanes; d < 32; d *= 2) {
        sum_[g] += __shfl_xor_sync(0xffffffff, sum_[g], d);
#pragma unroll
        for (int j = 0; j < 8; ++j) o_[g][j] += __shfl_xor_sync(0xffffffff, o_[g][j], d);
      }
      if (g >= group_ || lane_ >= kLanes) continue;
      auto* to = reinterpret_cast<float4*>(piece + g * kPieceRow + lane_ * 8);
      to[0] = make_float4(o_[g][0], o_[g][1], o_[g][2], o_[g][3]);
      to[1] = make_float4(o_[g][4], o_[g][5], o_[g][6], o_[g][7]);
      if (lane_ == 0) {
        piece[g * kPieceRow + kD] = max_[g];
        piece[g * kPieceRow + kD + 1] = sum_[g];
      }
    }
  }

 private:
  // This lane's key of a unit in a step.
  __device__ int key_of(int step) const {
    return step * kTogether + lane_ / kLanes;
  }

  // `stored`: cached keys; then the newest key, then none.
  __device__ __forceinline__ void score(const uint8_t* slot, const uint8_t* fresh_k, int stored,
                                        float (&p)[kSteps][kGroup]) const {
    const int column = lane_ % kLanes * 16;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int key = key_of(i);
      const uint8_t* row = key < stored ? slot + key * kD * 2 : fresh_k;
      float k[8];
      unpack_bf16x8(*reinterpret_cast<const uint4*>(row + column), k);
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        float s = 0;
#pragma unroll
        for (int j = 0; j < 8; ++j) s += q_[g][j] * k[j];
#pragma unroll
        for (int d = 1; d < kLanes; d *= 2) s += __shfl_xor_sync(0xffffffff, s, d);
        p[i][g] = s;
      }
    }
  }

  // Takes in a unit's values by its scores.
  __device__ __forceinline__ void weigh(const uint8_t* slot, const uint8_t* fresh_v, int first,
                                        const RelayKeys& keys, float (&p)[kSteps][kGroup]) {
    const int stored = keys.length - 1 - first, column = lane_ % kLanes * 16;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int key = key_of(i);
      const bool seen = key <= stored && first + key >= keys.first;
#pragma unroll
      for (int g = 0; g < kGroup; ++g) p[i][g] = seen ? p[i][g] : -INFINITY;
    }
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      float top = max_[g];
#pragma unroll
      for (int i = 0; i < kSteps; ++i) top = fmaxf(top, p[i][g]);
#pragma unroll
      for (int d = kLanes; d < 32; d *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, d));
      const float base = top == -INFINITY ? 0.f : top;
      const float keep = ptx::exp2_approx(max_[g] - base);
      max_[g] = top;
      sum_[g] *= keep;
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        p[i][g] = ptx::exp2_approx(p[i][g] - base);
        sum_[g] += p[i][g];
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) o_[g][j] *= keep;
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int key = key_of(i);
      const uint8_t* row = key < stored ? slot + kFusedSlotBytes / 2 + key * kD * 2 : fresh_v;
      float v[8];
      unpack_bf16x8(*reinterpret_cast<const uint4*>(row + column), v);
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
#pragma unroll
        for (int j = 0; j < 8; ++j) o_[g][j] += p[i][g] * v[j];
      }
    }
  }

  const int lane_;
  const int group_;
  float q_[kGroup][8];
  float o_[kGroup][8];
  float max_[kGroup];  // in units of log2, equal in all lanes
  float sum_[kGroup];  // over this lane's keys
};

}  // namespace braid::cuda
