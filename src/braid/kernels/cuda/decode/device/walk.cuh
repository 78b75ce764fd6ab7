#pragma once

#include "braid/kernels/cuda/decode/device/decode_args.h"
#include "braid/kernels/cuda/decode/layout.h"

// Units of work in order, on the device: each unit's sequence, KV head and keys.
namespace braid::cuda {

constexpr unsigned kAllLanes = 0xffffffff;

struct SequenceEntry {
  int32_t begin;  // first unit
  int32_t q_start;
  int32_t q_len;
  int32_t kv_len;
};

// A unit of work, walked in order.
struct Walk {
  int32_t s;
  int32_t head;  // among the KV heads in use
  int32_t tile;  // of query rows
  int32_t unit;  // of the item
  SequenceEntry sequence;
  SequenceWork work;
};

// The first key visible to a query whose own key is `position`.
__device__ __forceinline__ int32_t first_seen(const DecodeArgs& a, int, int32_t position) {
  return a.shape.window > 0 ? position - a.shape.window + 1 : 0;
}
__device__ __forceinline__ int32_t first_seen(const StateArgs& a, int query, int32_t) {
  return a.begin[query];
}

// The first key that this step may have written. A step writes at most a key for each query, and
// new keys end a query's list.
__device__ __forceinline__ int32_t first_new(const DecodeArgs&, const SequenceEntry& e) {
  return e.kv_len - e.q_len;
}
__device__ __forceinline__ int32_t first_new(const StateArgs& a, const SequenceEntry& e) {
  return e.kv_len - a.max_sequences;
}

// The place of a sequence's key in the cache.
__device__ __forceinline__ int32_t slot_of(const DecodeArgs& a, int s, int32_t key) {
  const int page = __umulhi(key, a.page_inverse);
  return a.page_table[int64_t{s} * a.table_stride + page] * a.page_size + key - page * a.page_size;
}
__device__ __forceinline__ int32_t slot_of(const StateArgs& a, int query, int32_t key) {
  return a.page_table[int64_t{a.rows[query]} * a.table_stride + key];
}

__device__ __forceinline__ SequenceWork work_of(const DecodeArgs& a, int, int32_t q_len,
                                                int32_t kv_len) {
  return sequence_work(a.shape, q_len, kv_len);
}
// None for a query without keys: write_keyless() has its states.
__device__ __forceinline__ SequenceWork work_of(const StateArgs& a, int query, int32_t q_len,
                                                int32_t kv_len) {
  const int32_t begin = a.begin[query];
  return sequence_work(a.shape, begin < kv_len ? q_len : 0, kv_len, begin);
}

template <class Args>
__device__ __forceinline__ void enter(const Args& a, const SequenceEntry* sequences, Walk& w) {
  const int4 e = reinterpret_cast<const int4*>(sequences)[w.s];
  w.sequence = {e.x, e.y, e.z, e.w};
  w.work = work_of(a, w.s, w.sequence.q_len, w.sequence.kv_len);
}

template <class Args>
__device__ __forceinline__ Walk locate(const Args& a, const SequenceEntry* sequences, int live,
                                       int position) {
  // The last sequence that begins at or before; a sequence without work begins with its successor.
  int low = 0;
  int high = live;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (sequences[middle].begin <= position) {
      low = middle;
    } else {
      high = middle;
    }
  }
  Walk w;
  w.s = low;
  enter(a, sequences, w);
  const int item = (position - w.sequence.begin) / w.work.units;
  w.unit = position - w.sequence.begin - item * w.work.units;
  w.head = w.work.tiles == 1 ? item : item / w.work.tiles;
  w.tile = item - w.head * w.work.tiles;
  return w;
}

// Moves to the next unit, which exists.
template <class Args>
__device__ __forceinline__ void advance(const Args& a, const SequenceEntry* sequences, Walk& w) {
  if (++w.unit < w.work.units) return;
  w.unit = 0;
  if (++w.tile < w.work.tiles) return;
  w.tile = 0;
  if (++w.head < a.shape.kv_heads) return;
  w.head = 0;
  do {
    ++w.s;
    enter(a, sequences, w);
  } while (w.work.items == 0);
}

// This thread's sequence: the entry, without `begin`, and the work.
__device__ __forceinline__ SequenceWork read_sequence(const StateArgs& a, int s, int,
                                                      SequenceEntry& e) {
  e = {};
  if (s >= a.max_sequences) return {};
  e = {.begin = 0, .q_start = s, .q_len = 1, .kv_len = max(0, a.kv_len[s])};
  return work_of(a, s, e.q_len, e.kv_len);
}
__device__ __forceinline__ SequenceWork read_sequence(const DecodeArgs& a, int s, int live,
                                                      SequenceEntry& e) {
  e = {};
  if (s >= a.max_sequences) return {};
  const int q_begin = a.q_start[s];
  const int q_end = a.q_start[s + 1];
  e.kv_len = max(0, a.kv_len[s]);
  e.q_start = q_begin;
  e.q_len = s < live ? max(0, q_end - q_begin) : 0;
  return sequence_work(a.shape, e.q_len, e.kv_len);
}

struct StepWork {
  int live;   // sequences
  int units;  // of all
  int items;
};

// Fills this warp's `sequences` (few) or the CTA's.
template <class Args>
__device__ inline StepWork scan_sequences(const Args& a, SequenceEntry* sequences, int32_t* scan) {
  const int warps = blockDim.x / 32;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const bool few = a.max_sequences <= kFewSequences;
  const int step = few ? 32 : blockDim.x;
  StepWork all{};
  all.live = a.max_sequences;
  if (a.sequences != nullptr) {
    all.live = static_cast<int>(min(static_cast<int64_t>(a.max_sequences), *a.sequences));
  }
#pragma unroll 1
  for (int base = 0; base < a.max_sequences; base += step) {
    const int s = base + (few ? lane : threadIdx.x);
    SequenceEntry e;
    const SequenceWork w = read_sequence(a, s, all.live, e);
    const int units = w.items * w.units;
    int units_sum = units;
    int items_sum = w.items;
#pragma unroll 1
    for (int d = 1; d < min(32, a.max_sequences); d *= 2) {
      const int u = __shfl_up_sync(kAllLanes, units_sum, d);
      const int i = __shfl_up_sync(kAllLanes, items_sum, d);
      if (lane >= d) {
        units_sum += u;
        items_sum += i;
      }
    }
    int below = all.units;
    if (few) {
      const int last = a.max_sequences - 1;
      all.units = __shfl_sync(kAllLanes, units_sum, last);
      all.items = __shfl_sync(kAllLanes, items_sum, last);
    } else {
      if (lane == 31) {
        scan[2 * warp] = units_sum;
        scan[2 * warp + 1] = items_sum;
      }
      __syncthreads();
      for (int i = 0; i < warps; ++i) {
        if (i < warp) below += scan[2 * i];
        all.units += scan[2 * i];
        all.items += scan[2 * i + 1];
      }
    }
    if (s < a.max_sequences) {
      reinterpret_cast<int4*>(sequences)[s] =
          make_int4(below + units_sum - units, e.q_start, e.q_len, e.kv_len);
    }
    if (few) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }
  return all;
}

}  // namespace braid::cuda
