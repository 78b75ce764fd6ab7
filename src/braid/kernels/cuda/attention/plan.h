#pragma once

#include <cstdint>

#include "braid/kernels/cuda/attention/config.h"

// How a call is cut into work items, shared by the kernels (device) and the tests (host).
#ifdef __CUDACC__
#define BRAID_HOST_DEVICE __host__ __device__ inline
#else
#define BRAID_HOST_DEVICE inline
#endif

namespace braid::cuda {

constexpr int32_t kNoWindow = 1 << 29;  // a window edge that no position reaches

// One launch, passed to a kernel by value. Segments are ordered heaviest first.
struct AttentionPlan {
  QSegment q[kMaxQSegments];
  KvSegment kv[kMaxKvSegments];
  int32_t
      item_begin[kMaxQSegments + 1];  // items of Q segment i: [item_begin[i], item_begin[i + 1])
  int32_t tiles_m[kMaxQSegments];     // tiles along L
  int32_t source[kMaxQSegments];      // its place in the caller's list
  int32_t num_q;
  int32_t num_items;
  int32_t batch;
  int32_t num_head_items;  // Hkv if packed, else Hq
  int32_t pack;            // query heads per tile; a tile's row is token * pack + head
  int32_t group;           // Hq / Hkv
  int32_t unit_tokens;     // tokens of 64 rows (64 / pack)
  int32_t tile_tokens;     // tokens of a tile
  int32_t heads_per_pass;  // heads worked on together, so that their keys stay in L2
  int32_t window_left;     // kNoWindow if unlimited
  int32_t window_right;
  int32_t page_size;
  float scale;
  bool load_state;
  bool finalize;
  bool state_bf16;
};

AttentionPlan make_plan(const AttentionDesc& desc, const AttentionParams& params,
                        const AttentionConfig& config);

// A tile of queries: tokens [token, token + tile_tokens) of sequence b and heads
// [head, head + pack).
struct WorkItem {
  int32_t segment;
  int32_t b;
  int32_t head;
  int32_t token;
  int32_t length;     // tokens of the sequence
  int32_t row;        // of the sequence's token 0 in the tensors (with `starts`; else 0)
  int32_t position;   // of the sequence's token 0
  int32_t num_tiles;  // of keys
};

// Tiles of keys [begin, end) of a segment that some query of the item sees; `length` is the
// segment's own.
struct KeyTiles {
  int32_t begin;
  int32_t end;
  int32_t length;
};

BRAID_HOST_DEVICE int32_t min_i(int32_t a, int32_t b) {
  return a < b ? a : b;
}
BRAID_HOST_DEVICE int32_t max_i(int32_t a, int32_t b) {
  return a > b ? a : b;
}

// Heads outside, tiles from the last (heaviest under a causal mask) to the first inside.
BRAID_HOST_DEVICE WorkItem decode_item(const AttentionPlan& plan, int32_t index) {
  int32_t segment = 0;
  while (segment + 1 < plan.num_q && index >= plan.item_begin[segment + 1]) ++segment;
  const QSegment& q = plan.q[segment];
  const int32_t tiles = plan.tiles_m[segment];
  const int32_t heads = plan.num_head_items * plan.batch;
  const int32_t local = index - plan.item_begin[segment];
  const int32_t pass = local / (plan.heads_per_pass * tiles);
  const int32_t in_pass = local - pass * plan.heads_per_pass * tiles;
  const int32_t pass_heads = min_i(plan.heads_per_pass, heads - pass * plan.heads_per_pass);
  const int32_t tile = tiles - 1 - in_pass / pass_heads;
  const int32_t bh = pass * plan.heads_per_pass + in_pass % pass_heads;
  WorkItem item;
  item.segment = segment;
  item.b = bh / plan.num_head_items;
  item.head = bh % plan.num_head_items * plan.pack;
  item.token = tile * plan.tile_tokens;
  item.row = q.starts ? q.starts[item.b] : 0;
  item.length = q.starts ? q.starts[item.b + 1] - item.row : q.length;
  item.position = q.offset + (q.offsets ? q.offsets[item.b] : 0);
  item.num_tiles = 0;
  return item;
}

BRAID_HOST_DEVICE KeyTiles key_tiles(const AttentionPlan& plan, const WorkItem& item, int32_t kv,
                                     int32_t block_n) {
  const KvSegment& s = plan.kv[kv];
  const int32_t length = s.lengths ? s.lengths[item.b] : s.length;
  const int32_t first = item.position + item.token - s.offset;  // in keys of the segment
  const int32_t last = first + min_i(plan.tile_tokens, item.length - item.token) - 1;
  const int32_t begin = max_i(0, first - plan.window_left);
  const int32_t end = min_i(length, last + plan.window_right + 1);
  if (end <= begin) return {0, 0, length};
  return {begin / block_n, (end + block_n - 1) / block_n, length};
}

BRAID_HOST_DEVICE int32_t count_key_tiles(const AttentionPlan& plan, const WorkItem& item,
                                          int32_t block_n) {
  int32_t n = 0;
  for (int32_t j = plan.q[item.segment].kv_begin; j < plan.q[item.segment].kv_end; ++j) {
    const KeyTiles tiles = key_tiles(plan, item, j, block_n);
    n += tiles.end - tiles.begin;
  }
  return n;
}

// Whether the tile holds a key that some query of the item does not see.
BRAID_HOST_DEVICE bool needs_mask(const AttentionPlan& plan, const WorkItem& item, int32_t offset,
                                  int32_t key, int32_t length, int32_t block_n) {
  const int32_t first = item.position + item.token - offset;
  const int32_t last = first + min_i(plan.tile_tokens, item.length - item.token) - 1;
  return key + block_n > length || key + block_n - 1 > first + plan.window_right ||
         key < last - plan.window_left;
}

}  // namespace braid::cuda
