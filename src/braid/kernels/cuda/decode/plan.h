#pragma once

#include <cstdint>

#include "braid/kernels/cuda/host_device.h"

// How the keys of a step are dealt to CTAs and their warps, shared by the kernel and the tests.
// An item is (sequence, KV head, tile of query rows); a unit is a run of keys of one item. Units
// are numbered item after item, sequence after sequence, and each worker takes a range of them.
namespace braid::cuda {

constexpr int32_t kTileRows = 8;  // query rows of a tile: rows are token * group + head in group

constexpr BRAID_HOST_DEVICE int32_t unit_log2(int32_t head_dim) {
  return head_dim <= 64 ? 5 : 4;
}
constexpr BRAID_HOST_DEVICE int32_t unit_keys(int32_t head_dim) {
  return 1 << unit_log2(head_dim);
}

// What all sequences have in common.
struct DecodeShape {
  int32_t unit_log2;  // of the keys of a unit
  int32_t group;
  int32_t kv_heads;  // that are read
  int32_t window;    // 0: none
};

// The work of one sequence of q_len new tokens and kv_len keys, those of the new tokens included.
struct SequenceWork {
  int32_t first_unit;  // keys of units before it are not seen
  int32_t units;       // of an item; at least one, so that each row is written
  int32_t tiles;       // of query rows
  int32_t items;       // kv_heads * tiles
};

BRAID_HOST_DEVICE SequenceWork sequence_work(const DecodeShape& shape, int32_t q_len,
                                             int32_t kv_len) {
  SequenceWork w;
  int32_t low = 0;
  if (shape.window > 0 && kv_len - q_len - shape.window + 1 > 0) {
    low = kv_len - q_len - shape.window + 1;
  }
  w.first_unit = low >> shape.unit_log2;
  w.units = ((kv_len + (1 << shape.unit_log2) - 1) >> shape.unit_log2) - w.first_unit;
  if (w.units < 1) w.units = 1;
  w.tiles = q_len > 0 ? (q_len * shape.group + kTileRows - 1) / kTileRows : 0;
  w.items = w.tiles * shape.kv_heads;
  return w;
}

// [0, total) cut into `parts` ranges whose lengths differ by one at most.
struct Deal {
  int32_t parts;
  int32_t share;
  int32_t extra;  // the first `extra` parts have one more

  BRAID_HOST_DEVICE Deal(int32_t total, int32_t parts) : Deal(total, parts, total / parts) {}
  BRAID_HOST_DEVICE Deal(int32_t total, int32_t parts, int32_t share)
      : parts(parts), share(share), extra(total - share * parts) {}
  BRAID_HOST_DEVICE int32_t begin(int32_t part) const {
    return part * share + (part < extra ? part : extra);
  }
  // Of an element of the range.
  BRAID_HOST_DEVICE int32_t owner(int32_t i) const {
    const int32_t longer = extra * (share + 1);
    return i < longer ? i / (share + 1) : extra + (i - longer) / share;
  }
};

// `units` dealt to CTAs of 2^warps_log2 warps, at most `ctas`: with few units some stay idle, as a
// result in fewer parts is put together sooner. Each of few items is a whole number of CTAs' where
// that costs no more rounds of units. Where at most a thirtieth of the CTAs stay idle for it, which
// memory does not notice over many rounds, it may cost some; and of more items than CTAs each has
// a whole number, if items are as long as each other. Divisions are few: the kernel waits for each.
BRAID_HOST_DEVICE Deal deal_to_ctas(int32_t units, int32_t items, int32_t ctas,
                                    int32_t warps_log2) {
  const int32_t warps = 1 << warps_log2;
  const int32_t useful = (units + warps - 1) >> warps_log2;
  const int32_t most = useful < 1 ? 1 : useful < ctas ? useful : ctas;
  const Deal all(units, most);
  if (items > most) {
    const int32_t each = (items + most - 1) / most, whole = items / each;
    return whole * each == items && most - whole <= most / 30 ? Deal(units, whole) : all;
  }
  if (items < 1) return all;
  const Deal even(units, most / items * items);
  const int32_t rounds = (all.share + (all.extra > 0) + warps - 1) >> warps_log2;
  const int32_t even_rounds = (even.share + (even.extra > 0) + warps - 1) >> warps_log2;
  const bool long_enough = rounds >= 8 && most - even.parts <= most / 30;
  return rounds == even_rounds || long_enough ? even : all;
}

}  // namespace braid::cuda
