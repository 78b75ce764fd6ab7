#pragma once

#include <mma.h>

#include "braid/kernels/cuda/thinning/device/thin_keys.h"
#include "braid/kernels/cuda/thinning/paid_visits.h"

// Attention that queries pay keys: two passes over tiles of scores.
namespace braid::cuda {

constexpr int kTileRows = 16;  // a row is a query of a head in the group
constexpr int kScoreThreads = 128;
constexpr int kScorePitch = kTileKeys + 4;

struct ThinArgs {
  struct Part {
    const void* q;
    int64_t q_row, k_row;  // first rows
    int32_t n;             // keys
    int32_t queries;       // that score; 0: `scores` from q_row on are the importance
    int32_t sees;          // keys in view of the first query; each next query has a key more
    int32_t keep, sinks;
    int64_t base;  // its items' begin, [Hkv, n]
    int64_t to;    // first kept row
  };
  Part part[kMostThinnedParts];
  const void *k, *v;
  const float* scores;  // [.., heads]
  void *kept_k, *kept_v;
  int32_t* put_order;          // [items / heads, heads], or null
  int parts, heads, group, D;  // KV heads
  int recent;
  int rows;   // most scoring rows per head: a head's stride in sums and logs
  int tiles;  // of the longest part
  float scale;
  float2* sums;      // [parts, heads, rows, tiles] maximum, and sum relative to it
  float* logs;       // [parts, heads, rows] log of all keys' sum
  uint32_t* keys;    // [items] sort keys among a KV head's items in a part
  int32_t* places;   // [items] rows of the part
  uint32_t* sorted;  // [items]
  int32_t* order;    // [items]
};

template <class T>
struct ScoreTile {
  T* k;      // [kTileKeys, pitch]
  T* q;      // [kTileRows, pitch]
  float* s;  // [kTileRows, kScorePitch]
  int pitch;
};

inline int score_pitch(int D, int bytes) {
  return D + 16 / bytes;
}
inline size_t score_bytes(int D, int bytes) {
  return static_cast<size_t>(kTileKeys + kTileRows) * score_pitch(D, bytes) * bytes +
         sizeof(float) * kTileRows * kScorePitch;
}

__device__ inline float widened(float x) {
  return x;
}
__device__ inline float widened(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ inline float widened(__half x) {
  return __half2float(x);
}

// s = q k^T, unscaled, of the tile in shared memory.
template <class T, bool kTensor>
__device__ inline void multiply(const ScoreTile<T>& tile, int D) {
  if constexpr (kTensor) {
    namespace wmma = nvcuda::wmma;
    const int keys = threadIdx.x / 32 * 16;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int d = 0; d < D; d += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> a;
      wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major> b;
      wmma::load_matrix_sync(a, tile.q + d, tile.pitch);
      wmma::load_matrix_sync(b, tile.k + keys * tile.pitch + d, tile.pitch);
      wmma::mma_sync(sum, a, b, sum);
    }
    wmma::store_matrix_sync(tile.s + keys, sum, kScorePitch, wmma::mem_row_major);
  } else {
    for (int i = threadIdx.x; i < kTileRows * kTileKeys; i += kScoreThreads) {
      const T *q = tile.q + i / kTileKeys * tile.pitch, *k = tile.k + i % kTileKeys * tile.pitch;
      float sum = 0;
      for (int d = 0; d < D; ++d) sum += widened(q[d]) * widened(k[d]);
      tile.s[i / kTileKeys * kScorePitch + i % kTileKeys] = sum;
    }
  }
}

// A row's maximum and sum over keys [begin, end) of the tile, by eight lanes.
__device__ inline float2 sum_row(const float* s, int begin, int end, float scale) {
  const int lane = threadIdx.x % 8;
  float top = -INFINITY, sum = 0;
  for (int j = begin + lane; j < end; j += 8) top = fmaxf(top, s[j] * scale);
  for (int step = 4; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
  for (int j = begin + lane; j < end; j += 8) sum += expf(s[j] * scale - top);
  for (int step = 4; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return {top, sum};
}

// Rows [first, first + kTileKeys) of a head into the tile; zeros from row `n` on.
template <class T>
__device__ inline void load_keys(const ScoreTile<T>& tile, const void* k, int64_t first, int64_t n,
                                 int heads, int h, int D) {
  for (int i = threadIdx.x; i < kTileKeys * D; i += kScoreThreads) {
    const int64_t j = first + i / D;
    tile.k[i / D * tile.pitch + i % D] =
        j < n ? static_cast<const T*>(k)[(j * heads + h) * D + i % D] : T(0.0f);
  }
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
};

// Pass 1: `sums` of each row, `stride` apart. Pass 2: what a thread's key gets, by the rows'
// `logs`.
template <class T, bool kTensor, bool kSecond>
__device__ inline float score_tile(const ScoreTile<T>& tile, const TileQueries& by, float2* sums,
                                   int64_t stride, const float* logs) {
  const int rows = by.queries * by.group, key = threadIdx.x;
  const T* q = static_cast<const T*>(by.q);
  float paid = 0;
  for (int r0 = 0; r0 < rows; r0 += kTileRows) {
    for (int i = threadIdx.x; i < kTileRows * by.D; i += kScoreThreads) {
      const int r = r0 + i / by.D;
      const int64_t row = (by.q_row + r / by.group) * by.heads + by.h;
      tile.q[i / by.D * tile.pitch + i % by.D] =
          r < rows ? q[(row * by.group + r % by.group) * by.D + i % by.D] : T(0.0f);
    }
    __syncthreads();
    multiply<T, kTensor>(tile, by.D);
    __syncthreads();
    if constexpr (!kSecond) {
      const int r = r0 + threadIdx.x / 8;
      const int end = r < rows ? min(min(kTileKeys, by.end), by.sees + r / by.group) : 0;
      const float2 sum =
          sum_row(tile.s + threadIdx.x / 8 * kScorePitch, max(0, by.begin), end, by.scale);
      if (r < rows && threadIdx.x % 8 == 0) sums[r * stride] = sum;
    } else if (key < kTileKeys && key >= by.begin && key < by.end) {
      for (int i = 0; i < kTileRows && r0 + i < rows; ++i) {
        if (key >= by.sees + (r0 + i) / by.group) continue;
        paid += expf(tile.s[i * kScorePitch + key] * by.scale - logs[r0 + i]);
      }
    }
  }
  return paid;
}

// The log of the sum over a row's tiles, by a warp.
__device__ inline float log_of(const float2* sums, int tiles) {
  const int lane = threadIdx.x % 32;
  float top = -INFINITY, sum = 0;
  for (int i = lane; i < tiles; i += 32) top = fmaxf(top, sums[i].x);
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
  // A tile without a visible key has a sum of 0.
  for (int i = lane; i < tiles; i += 32) {
    if (sums[i].y > 0) sum += sums[i].y * expf(sums[i].x - top);
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return top + logf(sum);
}

// The tile in a CTA's shared memory.
template <class T>
__device__ inline ScoreTile<T> tile_in(unsigned char* shared, int D) {
  ScoreTile<T> tile;
  tile.pitch = D + 16 / static_cast<int>(sizeof(T));
  tile.s = reinterpret_cast<float*>(shared);
  tile.k = reinterpret_cast<T*>(tile.s + kTileRows * kScorePitch);
  tile.q = tile.k + kTileKeys * tile.pitch;
  return tile;
}

// Orders keys: the first `sinks`, then the last `recent` from the last on, then by falling
// importance. A stable sort keeps equal ones in order of position.
__device__ inline uint32_t place_of(const ThinArgs::Part& part, int j, int recent, float paid) {
  if (j < part.sinks) return j;
  if (part.n - 1 - j < recent) return part.sinks + part.n - 1 - j;
  return 0xffffffffu - __float_as_uint(paid);  // paid is no negative number
}

// A CTA per tile of keys, KV head and part. The first pass writes `sums`, the second `keys`.
template <class T, bool kTensor, bool kSecond>
__global__ void __launch_bounds__(kScoreThreads) score_kernel(const ThinArgs args) {
  extern __shared__ __align__(128) unsigned char shared[];
  const ThinArgs::Part& part = args.part[blockIdx.z];
  const int begin = blockIdx.x * kTileKeys, h = blockIdx.y;
  if (begin >= part.n) return;
  float paid = 0;
  if (part.queries > 0) {
    const ScoreTile<T> tile = tile_in<T>(shared, args.D);
    load_keys(tile, args.k, part.k_row + begin, part.k_row + part.n, args.heads, h, args.D);
    const TileQueries by{.q = part.q,
                         .q_row = part.q_row,
                         .queries = part.queries,
                         .begin = 0,
                         .end = part.n - begin,
                         .sees = part.sees - begin,
                         .heads = args.heads,
                         .group = args.group,
                         .h = h,
                         .D = args.D,
                         .scale = args.scale};
    const int64_t row = (static_cast<int64_t>(blockIdx.z) * args.heads + h) * args.rows;
    paid = score_tile<T, kTensor, kSecond>(tile, by, args.sums + row * args.tiles + blockIdx.x,
                                           args.tiles, args.logs + row);
  }
  if constexpr (kSecond) {
    const int j = begin + threadIdx.x;
    if (threadIdx.x >= kTileKeys || j >= part.n) return;
    if (part.queries > 0) {
      paid /= static_cast<float>(part.queries - max(0, j + 1 - part.sees));
    } else {
      paid = args.scores[(part.q_row + j) * args.heads + h];
    }
    const int64_t item = part.base + static_cast<int64_t>(h) * part.n + j;
    args.keys[item] = place_of(part, j, args.recent, paid);
    args.places[item] = j;
  }
}

}  // namespace braid::cuda
