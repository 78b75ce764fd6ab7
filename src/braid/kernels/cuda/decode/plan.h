#pragma once

#include <cstdint>

#include "braid/kernels/cuda/host_device.h"
#include "braid/kernels/cuda/shares.h"

// Deals a step's keys to CTAs and warps, for the kernel and the tests. An item is (sequence, KV
// head, tile of query rows); a unit is a run of an item's keys. Units are numbered item after item,
// sequence after sequence, and each worker takes a range.
namespace braid::cuda {

constexpr int32_t kTileRows = 8;  // query rows of a tile: rows are token * group + head in group

constexpr BRAID_HOST_DEVICE int32_t unit_log2(int32_t head_dim) {
  return head_dim <= 64 ? 5 : 4;
}
constexpr BRAID_HOST_DEVICE int32_t unit_keys(int32_t head_dim) {
  return 1 << unit_log2(head_dim);
}

// Common to all sequences.
struct DecodeShape {
  int32_t unit_log2;  // log2 of a unit's keys
  int32_t group;
  int32_t kv_heads;  // that are read
  int32_t window;    // 0: none
};

// Work of a sequence with q_len new tokens and kv_len keys, including the new tokens' keys.
struct SequenceWork {
  int32_t first_unit;  // keys of earlier units are hidden
  int32_t units;       // per item; at least one, to write each row
  int32_t tiles;       // of query rows
  int32_t items;       // kv_heads * tiles
};

// Keys before `low` are hidden from all of the sequence's tokens.
BRAID_HOST_DEVICE SequenceWork sequence_work(const DecodeShape& shape, int32_t q_len,
                                             int32_t kv_len, int32_t low) {
  SequenceWork w;
  w.first_unit = low >> shape.unit_log2;
  w.units = ((kv_len + (1 << shape.unit_log2) - 1) >> shape.unit_log2) - w.first_unit;
  if (w.units < 1) w.units = 1;
  w.tiles = q_len > 0 ? (q_len * shape.group + kTileRows - 1) / kTileRows : 0;
  w.items = w.tiles * shape.kv_heads;
  return w;
}
BRAID_HOST_DEVICE SequenceWork sequence_work(const DecodeShape& shape, int32_t q_len,
                                             int32_t kv_len) {
  int32_t low = 0;
  if (shape.window > 0 && kv_len - q_len - shape.window + 1 > 0) {
    low = kv_len - q_len - shape.window + 1;
  }
  return sequence_work(shape, q_len, kv_len, low);
}

// Units dealt to the first `parts` CTAs.
struct Deal : Shares {
  int32_t parts;

  BRAID_HOST_DEVICE Deal(int32_t units, int32_t parts) : Shares(units, parts), parts(parts) {}
};

// Deals `units` to at most `ctas` CTAs of 2^warps_log2 warps. With few units some CTAs stay idle:
// fewer parts merge sooner. With few items each item gets a whole number of CTAs, unless more
// rounds of units result. If at most a thirtieth of the CTAs stay idle, unnoticed by memory over
// many rounds, some rounds may be added; with more items than CTAs each CTA has a whole number of
// items of equal length. Divisions are few: the kernel waits for each.
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
  const int32_t rounds = (all.each + (all.more > 0) + warps - 1) >> warps_log2;
  const int32_t even_rounds = (even.each + (even.more > 0) + warps - 1) >> warps_log2;
  const bool long_enough = rounds >= 8 && most - even.parts <= most / 30;
  return rounds == even_rounds || long_enough ? even : all;
}

}  // namespace braid::cuda
