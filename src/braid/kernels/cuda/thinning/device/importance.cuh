#pragma once

#include "braid/kernels/cuda/thinning/device/scores.cuh"
#include "braid/kernels/cuda/thinning/device/thin_keys.h"

// Importances of a part's keys, as numbers to sort by.
namespace braid::cuda {

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
  uint32_t inverse;  // of group
  float2* sums;      // [parts, heads, rows, tiles] maximum, and sum relative to it
  float* logs;       // [parts, heads, rows] log of all keys' sum
  uint32_t* keys;    // [items] sort keys among a KV head's items in a part
  int32_t* places;   // [items] rows of the part
  uint32_t* sorted;  // [items]
  int32_t* order;    // [items]
};

// Orders keys: the first `sinks`, then the last `recent` from the last on, then by falling
// importance. A stable sort keeps equal ones in order of position.
__device__ inline uint32_t place_of(const ThinArgs::Part& part, int j, int recent, float paid) {
  if (j < part.sinks) return j;
  if (part.n - 1 - j < recent) return part.sinks + part.n - 1 - j;
  return 0xffffffffu - __float_as_uint(paid);  // paid is no negative number
}

// A CTA per kKeys keys, KV head and part. The first pass writes `sums`, the second `keys`.
template <class T, bool kTensor, bool kSecond>
__global__ void __launch_bounds__(ScoreForm<T, kTensor>::kThreads, ScoreForm<T, kTensor>::kCtas)
    score_kernel(const ThinArgs args) {
  using Form = ScoreForm<T, kTensor>;
  extern __shared__ __align__(128) unsigned char shared[];
  const ThinArgs::Part& part = args.part[blockIdx.z];
  const int begin = blockIdx.x * Form::kKeys, h = blockIdx.y;
  if (begin >= part.n) return;
  float paid = 0;
  if (part.queries > 0) {
    T* const k = reinterpret_cast<T*>(shared);
    load_keys<T, kTensor>(k, args.k, part.k_row + begin, part.k_row + part.n, args.heads, h,
                          args.D);
    const int tile = threadIdx.x / (32 * kRowWarps), first = begin + tile * kTileKeys;
    const T* const own = k + tile * kTileKeys * Form::pitch(args.D);
    const TileQueries by{.q = part.q,
                         .q_row = part.q_row,
                         .queries = part.queries,
                         .begin = 0,
                         .end = part.n - first,
                         .sees = part.sees - first,
                         .heads = args.heads,
                         .group = args.group,
                         .h = h,
                         .D = args.D,
                         .scale = args.scale,
                         .inverse = args.inverse};
    const int64_t row = (static_cast<int64_t>(blockIdx.z) * args.heads + h) * args.rows;
    LanePaid of_lane{};
    if (first >= part.n) {  // pays nothing
    } else if constexpr (kSecond) {
      pay_tile<T, kTensor>(of_lane, own, by, args.logs + row);
    } else {
      sum_tile<T, kTensor>(own, by, args.sums + row * args.tiles + first / kTileKeys, args.tiles);
    }
    if constexpr (kSecond) paid = paid_by_all<Form>(of_lane);
  }
  if constexpr (kSecond) {
    const int j = begin + threadIdx.x;
    if (threadIdx.x >= Form::kKeys || j >= part.n) return;
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
