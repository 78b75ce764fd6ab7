#pragma once

#include "braid/kernels/cuda/ptx/mma.h"
#include "braid/kernels/cuda/relay/relay_config.h"

// Attention of a warp to units of keys (relay_keys) for the query heads of a KV head.
//
// Scores are q [heads of a KV head, D] times K^T; results are V^T times weights [keys, heads]. The
// lane with row g and columns 2 t, 2 t + 1 of a matrix reads 16 bytes of a key's row at a time.
// Elements come in any order, equal for q and K. Keys come in an order (key_of) without bank
// conflicts for K and V.
namespace braid::cuda {

// A unit in shared memory: K [keys, D], then V, in rows of 128 swizzled bytes. Keys from `stored`
// on are new and lie elsewhere.
struct KeyUnit {
  const uint8_t* slot;
  const uint8_t* fresh;  // T [fresh_keys, 2, D]: new keys, each with its value
  int fresh_keys;        // at least one
  int stored;            // cached keys, then new keys, then none; may be negative
  int first;             // first visible key
  int end;               // behind the last visible key
};

// T: element type. kMany: units may have several new keys.
template <int kD, class T, bool kMany>
class KeyUnits {
  static constexpr int kKeys = relay_keys(kD);  // in a unit
  static constexpr int kTiles = kKeys / 8;      // per unit
  static constexpr int kReads = kD / 32;        // 16-byte reads of a key's row, by four lanes
  static constexpr int kParts = kD / 64;        // 128-byte parts of a row, swizzled

 public:
  static constexpr int kPieceRow = kD + 4;  // O', m, l

  __device__ KeyUnits() : g_(threadIdx.x % 32 / 4), t_(threadIdx.x % 4) {}

  // Begins with q [heads, D], without any key.
  __device__ void begin(const T* q, int heads) {
    const auto* from = reinterpret_cast<const uint4*>(q + min(g_, heads - 1) * kD);
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      const uint4 x = from[t_ + 4 * i];
      // Rows 0 to 7 of a take words 0 and 1, rows 8 to 15 words 2 and 3.
      q_[i][0] = x.x, q_[i][1] = x.z, q_[i][2] = x.y, q_[i][3] = x.w;
    }
#pragma unroll
    for (int i = 0; i < kD / 16; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) o_[i][c] = 0;
    }
    max_ = -INFINITY;
    sum_ = 0;
  }

  // Takes in a unit. `scale`: for scores in units of log2.
  __device__ __forceinline__ void add(const KeyUnit& unit, float scale) {
    float p[kTiles][2];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const int key = 8 * n + key_of(g_);
      const bool is_stored = key < unit.stored;
      const uint8_t* row = is_stored ? unit.slot + key * kD * 2 : fresh_row(unit, key);
      float low[4] = {}, high[4] = {};
#pragma unroll
      for (int i = 0; i < kReads; ++i) {
        const uint4 k = read(row, key, i / 2, t_ + i % 2 * 4, is_stored);
        ptx::mma_16816<T>(low, q_[i], k.x, k.y);
        ptx::mma_16816<T>(high, q_[i], k.z, k.w);
      }
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int its_key = 8 * n + key_of(2 * t_ + c);
        const bool seen = its_key < unit.end && its_key >= unit.first;
        p[n][c] = seen ? (low[c] + high[2 + c]) * scale : -INFINITY;
      }
    }
    weigh(p);
#pragma unroll
    for (int m = 0; m < kTiles / 2; ++m) {
      const uint32_t weights[2] = {ptx::pack<T>(p[2 * m][0], p[2 * m][1]),
                                   ptx::pack<T>(p[2 * m + 1][0], p[2 * m + 1][1])};
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        uint4 v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = 16 * m + i / 2 * 8 + key_of(2 * t_ + i % 2);
          const bool is_stored = key < unit.stored;  // past the newest anything may lie there
          const uint8_t* row = is_stored ? unit.slot + kRelaySlotBytes / 2 + key * kD * 2
                                         : fresh_row(unit, key) + kD * 2;
          v[i] = read(row, key, part, g_, is_stored);
        }
        float(*o)[4] = o_ + 4 * part;
        add_values(o[0], weights, v[0].x, v[1].x, v[2].x, v[3].x);
        add_values(o[1], weights, v[0].y, v[1].y, v[2].y, v[3].y);
        add_values(o[2], weights, v[0].z, v[1].z, v[2].z, v[3].z);
        add_values(o[3], weights, v[0].w, v[1].w, v[2].w, v[3].w);
      }
    }
  }

  // Stores this warp's sums: [heads, D + 4] of O', m and l.
  __device__ void put(float* piece, int heads) {
    sum_ += __shfl_xor_sync(0xffffffff, sum_, 1);
    sum_ += __shfl_xor_sync(0xffffffff, sum_, 2);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (2 * t_ + c >= heads) break;
      auto* to = reinterpret_cast<float4*>(piece + (2 * t_ + c) * kPieceRow + 8 * g_);
#pragma unroll
      for (int i = 0; i < kD / 16; i += 2) {  // 64 elements for four rows of o
        to[i / 4 * 16 + i % 4 / 2] =
            make_float4(o_[i][c], o_[i][c + 2], o_[i + 1][c], o_[i + 1][c + 2]);
      }
    }
    if (t_ == 0 && g_ < heads) {
      piece[g_ * kPieceRow + kD] = max_;
      piece[g_ * kPieceRow + kD + 1] = sum_;
    }
  }

 private:
  // Number of key r in a tile.
  __device__ static int key_of(int r) {
    const int b0 = r & 1, b1 = r >> 1 & 1, b2 = r >> 2;
    return kD == 128 ? b0 << 2 | (b1 ^ b0) << 1 | b2 : (b1 ^ b0) << 2 | b2 << 1 | b0;
  }
  __device__ static const uint8_t* fresh_row(const KeyUnit& unit, int key) {
    if constexpr (!kMany) return unit.fresh;
    return unit.fresh + min(max(key - unit.stored, 0), unit.fresh_keys - 1) * kD * 4;
  }
  // 16 bytes of a K or V row in a unit; stored rows are swizzled.
  __device__ static uint4 read(const uint8_t* row, int key, int part, int chunk, bool stored) {
    const int twist = stored ? (key * kParts + part) & 7 : 0;
    return *reinterpret_cast<const uint4*>(row + part * 128 + (chunk ^ twist) * 16);
  }

  // Turns scores, in units of log2, into weights, and scales earlier sums to the new maximum.
  __device__ __forceinline__ void weigh(float (&p)[kTiles][2]) {
    float top = max_;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) top = fmaxf(top, fmaxf(p[n][0], p[n][1]));
    top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 2));
    const float base = top == -INFINITY ? 0.f : top;
    const float keep = ptx::exp2_approx(max_ - base);
    max_ = top;
    sum_ *= keep;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        p[n][c] = ptx::exp2_approx(p[n][c] - base);
        sum_ += p[n][c];
      }
    }
    const float keeps[2] = {__shfl_sync(0xffffffff, keep, 8 * t_),
                            __shfl_sync(0xffffffff, keep, 8 * t_ + 4)};
#pragma unroll
    for (int i = 0; i < kD / 16; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) o_[i][c] *= keeps[c % 2];
    }
  }

  // A pair of elements from four keys: row g first, row g + 8 second.
  __device__ __forceinline__ static void add_values(float (&o)[4], const uint32_t (&weights)[2],
                                                    uint32_t v0, uint32_t v1, uint32_t v2,
                                                    uint32_t v3) {
    const uint32_t a[4] = {__byte_perm(v0, v1, 0x5410), __byte_perm(v0, v1, 0x7632),
                           __byte_perm(v2, v3, 0x5410), __byte_perm(v2, v3, 0x7632)};
    ptx::mma_16816<T>(o, a, weights[0], weights[1]);
  }

  const int g_;
  const int t_;
  // q for all query heads of the KV head.
  uint32_t q_[kReads][4];
  float o_[kD / 16][4];  // for heads 2 t and 2 t + 1
  float max_;
  float sum_;  // l over this lane's keys
};

}  // namespace braid::cuda
