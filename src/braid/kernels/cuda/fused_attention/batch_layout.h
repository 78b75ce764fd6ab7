#pragma once

#include <cstdint>

#include "braid/kernels/cuda/fused_attention/fused_config.h"
#include "braid/kernels/cuda/shares.h"

// A fused block of several tokens: how weights and keys are dealt, and where things lie in a CTA's
// shared memory, in bytes.
namespace braid::cuda {

// Weights come as tiles: a slot has 256 elements from each of 16 rows, for mma.
constexpr int kFusedTileRows = 16;
constexpr int kFusedChunk = kFusedSlotBytes / 2 / kFusedTileRows;

// Units dealt to a CTA's warps in consecutive parts. Slot i of a phase holds a unit of part
// i % kFusedWarps: the longer parts come first, so the last slots fit as well.
struct FusedParts {
  Shares parts;
  int begin;  // the phase's first slot
  int units;

  BRAID_HOST_DEVICE FusedParts(int first_slot, int count)
      : parts(count, kFusedWarps), begin(first_slot), units(count) {}
  BRAID_HOST_DEVICE int end() const { return begin + units; }
  BRAID_HOST_DEVICE int unit(int slot) const {
    const int i = slot - begin;
    return parts.begin(i % kFusedWarps) + i / kFusedWarps;
  }
  // The part for a warp that takes every slot i with i % kFusedWarps == warp.
  BRAID_HOST_DEVICE int part_of(int warp) const {
    return (warp + kFusedWarps - begin % kFusedWarps) % kFusedWarps;
  }
};

// Sums of a warp's part for a row group r lie in piece `part + r`. Both grow from part to part and
// from group to group: no two pairs share a piece.
BRAID_HOST_DEVICE constexpr int fused_pieces(int groups) {
  return groups + kFusedWarps - 1;
}

// Compile-time shape of a launch for several tokens.
struct FusedBatchShape {
  int slots;
  int cluster;
  int tokens;     // T, at most
  int each;       // tokens of an exchange
  int heads;      // query heads of an exchange of results
  int x_elems;    // of a token: the longest input, in whole chunks
  int head_rows;  // most rows of q, k and v on a CTA
  int tiles;      // most tiles of a product on a CTA
  int group;
  int head_dim;

  BRAID_HOST_DEVICE int columns() const { return tokens <= 8 ? 8 : 16; }
  BRAID_HOST_DEVICE int piece() const { return group * (head_dim + 4) * 4; }
  // Bytes that a CTA brings to an exchange.
  BRAID_HOST_DEVICE int part_bytes() const {
    const int rows = 2 * each * head_rows, pieces = each * heads * (head_dim + 4) * 4;
    return ((rows > pieces ? rows : pieces) + 15) / 16 * 16;
  }
  BRAID_HOST_DEVICE int inbox_bytes() const { return cluster * part_bytes(); }
};

// For a block accepted by fused_batches.
FusedBatchShape fused_batch(const FusedShape& shape, const FusedConfig& config);

// A live token, for all warps.
struct FusedToken {
  int sequence;
  int length;      // visible keys, with this token's own
  int fresh;       // of these, keys made by this step
  int first;       // first visible key
  int first_unit;  // of keys
  int base;        // units in earlier tokens; behind the last token: all units
};

// The second inbox and all data of attention take x's place, once q, k and v are made. Another CTA
// sends to the second inbox only when it has this CTA's q, k and v.
struct FusedBatchLayout {
  int ring;      // [slots, kFusedSlotBytes], aligned to 1024
  int barriers;  // u64 [2, slots]: full, empty
  int arrivals;  // u64 [kExchangeTurns, kExchangeRounds]
  int tokens;    // FusedToken [T + 1]
  int squares;   // f32 [T, warps]
  int flow;      // i32: copies a producer may have under way
  int sums;      // f32 [fused_pieces(tiles), kFusedTileRows, columns]
  int inbox;     // [kExchangeTurns, inbox_bytes]
  int x;         // bf16 [x_elems / 32, T, 32]
  int part;      // bf16 [each, head_rows], or f32 [each, heads, D + 4]
  int pieces;    // f32 [fused_pieces(T), group, D + 4]: O', m, l
  int q;         // [T, group, D] of the cache's type
  int fresh;     // [T, 2, D] likewise: the new keys and values
  int turns;     // f32 [T, 2, 64]: cos and sin
  int bytes;

  BRAID_HOST_DEVICE explicit FusedBatchLayout(const FusedBatchShape& s) {
    const auto lines = [](int n) { return (n + 15) / 16 * 16; };
    ring = 0;
    barriers = s.slots * kFusedSlotBytes;
    arrivals = barriers + 2 * s.slots * 8;
    tokens = arrivals + kExchangeTurns * kExchangeRounds * 8;
    squares = tokens + lines((s.tokens + 1) * static_cast<int>(sizeof(FusedToken)));
    flow = squares + s.tokens * kFusedWarps * 4;
    sums = flow + 16;
    inbox = sums + fused_pieces(s.tiles) * kFusedTileRows * s.columns() * 4;
    x = inbox + s.inbox_bytes();
    part = x + s.inbox_bytes();
    pieces = part + s.part_bytes();
    q = pieces + fused_pieces(s.tokens) * s.piece();
    fresh = q + s.tokens * s.group * s.head_dim * 2;
    turns = fresh + s.tokens * 2 * s.head_dim * 2;
    bytes = turns + s.tokens * 2 * 64 * 4;
    const int behind_x = x + s.tokens * s.x_elems * 2;
    if (bytes < behind_x) bytes = behind_x;
  }
};

// Tiles of a KV head's q, k and v.
BRAID_HOST_DEVICE constexpr int fused_head_tiles(int group, int head_dim) {
  return (group + 2) * head_dim / kFusedTileRows;
}

}  // namespace braid::cuda
