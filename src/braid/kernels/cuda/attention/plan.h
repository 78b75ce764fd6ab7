#pragma once

#include <cstdint>

#include "braid/kernels/cuda/attention/config.h"
#include "braid/kernels/cuda/attention/divisor.h"

// How a call is cut into work items, shared by the kernels (device) and the tests (host).
namespace braid::cuda {

constexpr int32_t kMaxTileUnits = 6;    // units of a tile, over a cluster's CTAs
constexpr int32_t kNoWindow = 1 << 29;  // a window edge beyond all positions
constexpr int32_t kKeyPiece = 8;        // rows: segments meet within a tile at multiples
constexpr int32_t kPartRows = 32;
constexpr int32_t kMaxRunLength = 1 << 28;

// A launch, passed to a kernel by value. Rows are dealt in units of 64. Q segments with the same
// visible keys and consecutive positions (or without a mask) form a run, and tiles continue from a
// segment to the next. Runs are ordered by stage, then heaviest first.
struct AttentionPlan {
  QTensor q[kMaxQSegments];
  KvTensor kv[kMaxKvSegments];
  int32_t run_begin[kMaxQSegments + 1];   // run r: segments [run_begin[r], run_begin[r + 1])
  int32_t unit_begin[kMaxQSegments];      // a segment's first unit in its run
  int32_t run_units[kMaxQSegments];       // units of run r
  int32_t tiles_m[kMaxQSegments];         // tiles of run r
  int32_t item_begin[kMaxQSegments + 1];  // items of run r: [item_begin[r], item_begin[r + 1])
  Divisor by_pass[kMaxQSegments];         // items of run r in a whole pass
  int32_t source[kMaxQSegments];          // its first part's index in the caller's list
  // Keys form runs as well: run r is KV segments [kv_run_begin[r], kv_run_begin[r + 1]), cut into
  // tiles as a single sequence of keys. A Q segment's [kv_begin, kv_end) are runs.
  int32_t kv_run_begin[kMaxKvSegments + 1];
  int32_t kv_run_length[kMaxKvSegments];  // keys of run r
  int32_t kv_first[kMaxKvSegments];       // a segment's first key in its run
  int32_t kv_stage[kMaxKvSegments];       // arrival number of run r
  int32_t num_q;
  int32_t num_runs;
  int32_t num_items;
  int32_t batch;
  int32_t num_head_items;  // Hkv if packed, else Hq
  int32_t pack;            // query heads per tile; a tile's row is token * pack + head
  int32_t pack_inverse;    // x * pack_inverse >> 16 is x / pack for x < 64
  int32_t group;           // Hq / Hkv
  int32_t unit_tokens;     // tokens of a unit (64 / pack)
  int32_t tile_units;
  int32_t heads_per_pass;  // heads processed together, to keep their keys in L2
  Divisor by_pass_heads;   // heads in a whole pass, and in the last pass
  Divisor by_last_heads;
  Divisor by_head_items;
  Divisor by_group;
  int32_t window_left;  // kNoWindow if unlimited
  int32_t window_right;
  int32_t page_size;
  float scale;
  bool device_lengths;  // some lengths or positions are read from device memory
  bool load_state;
  bool finalize;
  bool state_bf16;
};

AttentionPlan make_plan(const AttentionDesc& desc, const AttentionParams& params,
                        const AttentionConfig& config);

// A tile of queries: units [unit, unit + tile_units) of a run, for sequence b and heads [head, head
// + pack).
struct WorkItem {
  int32_t run;
  int32_t b;
  int32_t head;
  int32_t unit;
  int32_t first;  // position of the first row
  int32_t last;   // position of the last row, for windows
  bool any;       // has rows: a sequence with a device-known length may end before
};

// An item's 64 rows: tokens [token, token + unit_tokens) in a sequence, up to the sequence's end.
struct ItemUnit {
  int32_t segment;
  int32_t token;
  int32_t length;    // tokens of the sequence
  int32_t row;       // row of the sequence's token 0 in the tensors (with `starts`; else 0)
  int32_t position;  // position of the sequence's token 0
};

// A run's tiles of keys [begin, end) that are visible to the item; `length` is the run's.
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

// Unit `unit` of the run; a unit past the run's end has no valid row.
BRAID_HOST_DEVICE ItemUnit locate(const AttentionPlan& plan, int32_t run, int32_t b, int32_t unit) {
  int32_t segment = plan.run_begin[run];
  while (segment + 1 < plan.run_begin[run + 1] && unit >= plan.unit_begin[segment + 1]) ++segment;
  const QTensor& q = plan.q[segment];
  ItemUnit u;
  u.segment = segment;
  u.token = (unit - plan.unit_begin[segment]) * plan.unit_tokens;
  u.row = q.starts ? q.starts[b] : 0;
  u.length = q.starts ? q.starts[b + 1] - u.row : q.length;
  u.position = q.offset + (q.offsets ? q.offsets[b] : 0);
  return u;
}

// The unit after, as `locate` finds the unit.
BRAID_HOST_DEVICE ItemUnit next_unit(const AttentionPlan& plan, int32_t run, ItemUnit u) {
  u.token += plan.unit_tokens;
  const int32_t next = u.segment + 1;
  if (u.token < u.length || next >= plan.run_begin[run + 1]) return u;
  const QTensor& q = plan.q[next];  // no segment after a run's first reads its place from memory
  u.segment = next;
  u.token = 0;
  u.length = q.length;
  u.position = q.offset;
  return u;
}

BRAID_HOST_DEVICE WorkItem make_item(const AttentionPlan& plan, int32_t run, int32_t tile,
                                     int32_t bh) {
  WorkItem item;
  item.run = run;
  item.b = divide(bh, plan.by_head_items);
  item.head = (bh - item.b * plan.num_head_items) * plan.pack;
  item.unit = tile * plan.tile_units;
  const ItemUnit begin = locate(plan, run, item.b, item.unit);
  item.any = begin.token < begin.length;
  item.first = begin.position + begin.token;
  item.last = item.first;
  if (plan.window_left != kNoWindow || plan.window_right != kNoWindow) {
    const int32_t last_unit = min_i(item.unit + plan.tile_units, plan.run_units[run]) - 1;
    const ItemUnit end = locate(plan, run, item.b, last_unit);
    item.last = end.position + min_i(end.token + plan.unit_tokens, end.length) - 1;
  }
  return item;
}

// Heads outside, tiles from the last (heaviest under a causal mask) to the first inside.
BRAID_HOST_DEVICE WorkItem decode_item(const AttentionPlan& plan, int32_t index) {
  int32_t run = 0;
  while (run + 1 < plan.num_runs && index >= plan.item_begin[run + 1]) ++run;
  const int32_t tiles = plan.tiles_m[run];
  const int32_t heads = plan.num_head_items * plan.batch;
  const int32_t local = index - plan.item_begin[run];
  const int32_t pass = divide(local, plan.by_pass[run]);
  const int32_t in_pass = local - pass * plan.heads_per_pass * tiles;
  const int32_t left = heads - pass * plan.heads_per_pass;
  const bool whole = left >= plan.heads_per_pass;
  const int32_t pass_heads = whole ? plan.heads_per_pass : left;
  const int32_t row = divide(in_pass, whole ? plan.by_pass_heads : plan.by_last_heads);
  return make_item(plan, run, tiles - 1 - row,
                   pass * plan.heads_per_pass + in_pass - row * pass_heads);
}

BRAID_HOST_DEVICE KeyTiles key_tiles(const AttentionPlan& plan, const WorkItem& item, int32_t run,
                                     int32_t block_n) {
  const KvTensor& s = plan.kv[plan.kv_run_begin[run]];
  const int32_t length = s.lengths ? s.lengths[item.b] : plan.kv_run_length[run];
  const int32_t begin = max_i(0, item.first - s.offset - plan.window_left);
  const int32_t end = min_i(length, item.last - s.offset + plan.window_right + 1);
  if (end <= begin) return {0, 0, length};
  return {begin / block_n, (end + block_n - 1) / block_n, length};
}

BRAID_HOST_DEVICE int32_t count_key_tiles(const AttentionPlan& plan, const WorkItem& item,
                                          int32_t block_n) {
  const QTensor& q = plan.q[plan.run_begin[item.run]];
  int32_t n = 0;
  for (int32_t j = q.kv_begin; j < q.kv_end; ++j) {
    const KeyTiles tiles = key_tiles(plan, item, j, block_n);
    n += tiles.end - tiles.begin;
  }
  return n;
}

// Whether the tile, `valid` keys of a run from `position` on, holds a key hidden from some query of
// the item.
BRAID_HOST_DEVICE bool needs_mask(const AttentionPlan& plan, const WorkItem& item, int32_t position,
                                  int32_t valid, int32_t block_n) {
  return block_n > valid || position + block_n - 1 > item.first + plan.window_right ||
         position < item.last - plan.window_left;
}

}  // namespace braid::cuda
