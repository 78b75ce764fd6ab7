#pragma once

#include "braid/kernels/cuda/ptx/mma.h"
#include "braid/kernels/cuda/ptx/shared.h"
#include "braid/kernels/cuda/thinning/paid_visits.h"

// Attention that queries pay keys: two passes over tiles of scores. A warp scores kWarpRows rows by
// kTileKeys keys in registers, with rows from global and keys from shared memory.
namespace braid::cuda {

constexpr int kWarpRows = 32;  // a row is a query of a head in the group
constexpr int kRowWarps = 4;   // of a CTA, over the same keys

// A CTA scores kTiles tiles side by side, each by kRowWarps warps.
template <class T, bool kTensor>
struct ScoreForm {
  static constexpr int kTiles = kTensor ? 2 : 1;
  static constexpr int kKeys = kTiles * kTileKeys;
  static constexpr int kThreads = 32 * kRowWarps * kTiles;
  static constexpr int kCtas = 512 / kThreads;  // of a multiprocessor, by registers
  // Of a key in shared memory. Tensor cores read runs of 32 numbers; 16 bytes more put eight keys
  // into different banks.
  static __host__ __device__ int pitch(int D) { return kTensor ? (D + 31) / 32 * 32 + 8 : D + 1; }
  static size_t bytes(int D) { return sizeof(T) * kKeys * static_cast<size_t>(pitch(D)); }
};

__device__ inline float widened(float x) {
  return x;
}
__device__ inline float widened(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ inline float widened(__half x) {
  return __half2float(x);
}

// A lane's scores as tensor cores lay these out: key 16 m + lane / 4 + 8 (e / 2), row
// 8 n + lane % 4 * 2 + e % 2 at [m][n][e].
constexpr int kM = kTileKeys / 16, kN = kWarpRows / 8;
using LaneScores = float[kM][kN][4];

// s += k q^T. Row lane / 4 + 8 n is q + at[n], or zeros where at[n] < 0. Sums over d may go in any
// order that q and k share: a lane reads 8 numbers of a run of q, and load_keys has put word w of
// each such 8 side by side, as chunk w of the run.
template <class T>
__device__ inline void multiply_by_tensor(LaneScores& s, const T* q, const int (&at)[kN],
                                          const T* k, int pitch, int D) {
  const int lane = threadIdx.x % 32;
  uint32_t keys = ptx::smem_address(k + lane % 16 * pitch + lane / 16 * 8);
#pragma unroll 1
  for (int d = lane % 4 * 8; d < D + lane % 4 * 8; d += 32, keys += 64) {
    uint4 b[kN];
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      b[n] = at[n] < 0 || d >= D ? uint4{} : __ldg(reinterpret_cast<const uint4*>(q + at[n] + d));
    }
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      uint32_t a[2][4];
      ptx::ldmatrix_x4(a[0], keys + m * 16 * pitch * static_cast<int>(sizeof(T)));
      ptx::ldmatrix_x4(a[1], keys + m * 16 * pitch * static_cast<int>(sizeof(T)) + 32);
#pragma unroll
      for (int n = 0; n < kN; ++n) ptx::mma_16816<T>(s[m][n], a[0], b[n].x, b[n].y);
#pragma unroll
      for (int n = 0; n < kN; ++n) ptx::mma_16816<T>(s[m][n], a[1], b[n].z, b[n].w);
    }
  }
}

// The same of keys as in memory, with a lane's scores by itself: rows at q + at[2 n + e % 2].
template <class T>
__device__ inline void multiply_by_lane(LaneScores& s, const T* q, const int (&at)[2 * kN],
                                        const T* k, int pitch, int D) {
  const T* const own = k + threadIdx.x % 32 / 4 * pitch;
  for (int d = 0; d < D; ++d) {
    float x[2 * kN];
#pragma unroll
    for (int i = 0; i < 2 * kN; ++i) x[i] = at[i] < 0 ? 0.0f : widened(q[at[i] + d]);
#pragma unroll
    for (int i = 0; i < 2 * kM; ++i) {
      const float y = widened(own[i * 8 * pitch + d]);
#pragma unroll
      for (int j = 0; j < 2 * kN; ++j) s[i / 2][j / 2][i % 2 * 2 + j % 2] += x[j] * y;
    }
  }
}

// A head's keys [first, first + kKeys) to shared memory, zeros from key `n` on, and wait.
template <class T, bool kTensor>
__device__ inline void load_keys(T* to, const void* k, int64_t first, int64_t n, int heads, int h,
                                 int D) {
  using Form = ScoreForm<T, kTensor>;
  const int pitch = Form::pitch(D);
  const auto key = [&](int j) { return static_cast<const T*>(k) + ((first + j) * heads + h) * D; };
  if constexpr (kTensor) {
    const int runs = (D + 31) / 32;
    for (int i = threadIdx.x; i < Form::kKeys * runs; i += Form::kThreads) {
      const int j = i % Form::kKeys, run = i / Form::kKeys * 32;
      uint4 x[4];
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const int d = run + t * 8;
        x[t] = first + j < n && d < D ? __ldg(reinterpret_cast<const uint4*>(key(j) + d)) : uint4{};
      }
      auto* const chunks = reinterpret_cast<uint4*>(to + j * pitch + run);
      chunks[0] = {x[0].x, x[1].x, x[2].x, x[3].x};
      chunks[1] = {x[0].y, x[1].y, x[2].y, x[3].y};
      chunks[2] = {x[0].z, x[1].z, x[2].z, x[3].z};
      chunks[3] = {x[0].w, x[1].w, x[2].w, x[3].w};
    }
  } else {
    for (int i = threadIdx.x; i < Form::kKeys * D; i += Form::kThreads) {
      const int j = i / D, d = i % D;
      to[j * pitch + d] = first + j < n ? key(j)[d] : T(0.0f);
    }
  }
  __syncthreads();
}

// 2^32 / group, rounded up, for query_of; 0 for a group of 1.
inline uint32_t inverse_of(int group) {
  return 0xffffffffu / static_cast<uint32_t>(group) + 1;
}

// Queries over a tile of keys of KV head h. The first query sees the tile's keys [begin, sees),
// each next query a key more, up to `end`.
struct TileQueries {
  const void* q;  // [.., heads * group, D]
  int64_t q_row;
  int queries;
  int begin, end, sees;
  int heads, group, h, D;
  float scale;
  uint32_t inverse;  // of group

  // Of a row below 2^32 / group.
  __device__ int query_of(int row) const {
    return inverse == 0 ? row : static_cast<int>(__umulhi(static_cast<uint32_t>(row), inverse));
  }
};

// A lane's scores of rows from r0 on in powers of two; -infinity where a row does not see a key.
template <class T, bool kTensor>
__device__ inline void score_rows(LaneScores& s, const T* k, const TileQueries& by, int r0) {
  const int rows = by.queries * by.group, lane = threadIdx.x % 32;
  const T* const q = static_cast<const T*>(by.q) + (by.q_row * by.heads + by.h) * by.group * by.D;
  const auto at = [&](int r) {
    return r < rows ? (by.query_of(r) * (by.heads - 1) * by.group + r) * by.D : -1;
  };
#pragma unroll
  for (int i = 0; i < kM * kN * 4; ++i) s[i / 4 / kN][i / 4 % kN][i % 4] = 0;
  const int pitch = ScoreForm<T, kTensor>::pitch(by.D), first = r0 + lane % 4 * 2;
  if constexpr (kTensor) {
    int at_rows[kN];
#pragma unroll
    for (int n = 0; n < kN; ++n) at_rows[n] = at(r0 + 8 * n + lane / 4);
    multiply_by_tensor(s, q, at_rows, k, pitch, by.D);
  } else {
    int at_rows[2 * kN];
#pragma unroll
    for (int i = 0; i < 2 * kN; ++i) at_rows[i] = at(first + i / 2 * 8 + i % 2);
    multiply_by_lane(s, q, at_rows, k, pitch, by.D);
  }
  const float scale = by.scale * ptx::kLog2E;
  const bool all = by.begin <= 0 && min(by.end, by.sees) >= kTileKeys && r0 + kWarpRows <= rows;
#pragma unroll
  for (int i = 0; i < kM * kN * 4; ++i) s[i / 4 / kN][i / 4 % kN][i % 4] *= scale;
  if (all) return;
#pragma unroll
  for (int i = 0; i < 2 * kN; ++i) {
    const int r = first + i / 2 * 8 + i % 2;
    const int end = r < rows ? min(by.end, by.sees + by.query_of(r)) : 0;
#pragma unroll
    for (int j = 0; j < 2 * kM; ++j) {
      const int key = j * 8 + lane / 4;
      if (key < by.begin || key >= end) s[j / 2][i / 2][j % 2 * 2 + i % 2] = -INFINITY;
    }
  }
}

// Pass 1, over a warp's tile: each row's maximum, and sum relative to it; `stride` apart.
template <class T, bool kTensor>
__device__ inline void sum_tile(const T* k, const TileQueries& by, float2* sums, int64_t stride) {
  const int rows = by.queries * by.group, lane = threadIdx.x % 32;
  for (int r0 = threadIdx.x / 32 % kRowWarps * kWarpRows; r0 < rows; r0 += kRowWarps * kWarpRows) {
    LaneScores s;
    score_rows<T, kTensor>(s, k, by, r0);
#pragma unroll
    for (int i = 0; i < 2 * kN; ++i) {
      float top = -INFINITY, sum = 0;
#pragma unroll
      for (int j = 0; j < 2 * kM; ++j) top = fmaxf(top, s[j / 2][i / 2][j % 2 * 2 + i % 2]);
      for (int step = 4; step < 32; step *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
      const float from = top == -INFINITY ? 0.0f : top;
#pragma unroll
      for (int j = 0; j < 2 * kM; ++j) {
        sum += ptx::exp2_approx(s[j / 2][i / 2][j % 2 * 2 + i % 2] - from);
      }
      for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
      const int r = r0 + i / 2 * 8 + lane % 4 * 2 + i % 2;
      if (r < rows && lane / 4 == i) sums[r * stride] = {top, sum};
    }
  }
}

// What a lane's rows pay its keys lane / 4 + 8 j.
using LanePaid = float[2 * kM];

// Pass 2, by the rows' `logs`.
template <class T, bool kTensor>
__device__ inline void pay_tile(LanePaid& paid, const T* k, const TileQueries& by,
                                const float* logs) {
  const int rows = by.queries * by.group, lane = threadIdx.x % 32;
  for (int r0 = threadIdx.x / 32 % kRowWarps * kWarpRows; r0 < rows; r0 += kRowWarps * kWarpRows) {
    LaneScores s;
    score_rows<T, kTensor>(s, k, by, r0);
#pragma unroll
    for (int i = 0; i < 2 * kN; ++i) {
      const int r = r0 + i / 2 * 8 + lane % 4 * 2 + i % 2;
      const float log = r < rows ? logs[r] : 0.0f;
      const float from = log == -INFINITY ? 0.0f : log;  // a row without keys
#pragma unroll
      for (int j = 0; j < 2 * kM; ++j) {
        paid[j] += ptx::exp2_approx(s[j / 2][i / 2][j % 2 * 2 + i % 2] - from);
      }
    }
  }
}

// What all warps' rows pay key threadIdx.x of the CTA's.
template <class Form>
__device__ inline float paid_by_all(LanePaid& paid) {
  __shared__ float sums[kRowWarps][Form::kKeys];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int j = 0; j < 2 * kM; ++j) {
    for (int step = 1; step < 4; step *= 2) paid[j] += __shfl_xor_sync(~0u, paid[j], step);
    const int key = warp / kRowWarps * kTileKeys + j * 8 + lane / 4;
    if (lane % 4 == 0) sums[warp % kRowWarps][key] = paid[j];
  }
  __syncthreads();
  float sum = 0;
  if (threadIdx.x < Form::kKeys) {
    for (int i = 0; i < kRowWarps; ++i) sum += sums[i][threadIdx.x];
  }
  return sum;
}

// The log of the sum over a row's tiles, by a warp; to base 2.
__device__ inline float log_of(const float2* sums, int tiles) {
  const int lane = threadIdx.x % 32;
  float top = -INFINITY, sum = 0;
  for (int i = lane; i < tiles; i += 32) top = fmaxf(top, sums[i].x);
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
  // A tile without a visible key has a sum of 0.
  for (int i = lane; i < tiles; i += 32) {
    if (sums[i].y > 0) sum += sums[i].y * exp2f(sums[i].x - top);
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return top + log2f(sum);
}

}  // namespace braid::cuda
