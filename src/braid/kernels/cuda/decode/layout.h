#pragma once

#include <cstdint>

#include "braid/kernels/cuda/decode/plan.h"

// Offsets in a CTA's shared memory and in the workspace of a launch.
namespace braid::cuda {

constexpr int32_t kRingUnits = 2;      // units that a warp keeps on the way
constexpr int32_t kFewSequences = 32;  // up to these each warp reads the metadata for itself
constexpr int32_t kMaxWarps = 8;
constexpr int32_t kGroup = 16;  // parts added by a CTA
constexpr int32_t kMaxCtas = kGroup * kGroup;
constexpr int32_t kPiecesPerWarp = 2;  // unfinished parts of items per warp

// Elements from key to key in a tile: whole lines of 128 bytes. A key's 16-byte chunks change
// places by the key's number, so eight keys lie in different banks. (Rows padded by 16 bytes do
// so, too, but copies into padded rows are cut at lines' ends: 2.6 times as many requests to
// L2.)
constexpr BRAID_HOST_DEVICE int32_t tile_row(int32_t head_dim) {
  return (head_dim + 63) / 64 * 64;
}
// Rows are padded by 16 bytes: eight rows lie in different banks.
constexpr BRAID_HOST_DEVICE int32_t piece_row(int32_t head_dim) {
  return head_dim + 4;
}

// K and V tiles of a warp's ring, 2 bytes an element.
constexpr BRAID_HOST_DEVICE int32_t ring_bytes(int32_t head_dim) {
  return kRingUnits * 2 * unit_keys(head_dim) * tile_row(head_dim) * 2;
}

struct DecodeShared {
  int32_t pieces;     // f32 [warps, 8, D + 4]: O' of each warp's first piece; the second piece lies
                      // in the warp's ring, after the ring's tiles are used up
  int32_t stats;      // f32 [warps, 2, 2, 8]: m and l
  int32_t items;      // int4 [warps, 2]
  int32_t sequences;  // int4 [S], or [warps, S] where S is small
  int32_t scan;       // i32 [2 warps]
  int32_t bytes;

  BRAID_HOST_DEVICE DecodeShared(int32_t head_dim, int32_t warps, int32_t max_sequences) {
    pieces = warps * ring_bytes(head_dim);
    stats = pieces + warps * kTileRows * piece_row(head_dim) * 4;
    items = stats + warps * kPiecesPerWarp * 2 * kTileRows * 4;
    sequences = items + warps * kPiecesPerWarp * 16;
    scan = sequences + max_sequences * (max_sequences <= kFewSequences ? warps : 1) * 16;
    bytes = scan + 2 * warps * 4 + 32;
  }
};

// Each CTA leaves up to two unfinished items: slot 0 for an item begun by an earlier CTA, slot 1
// for an item begun here. Above kGroup parts of an item, groups of parts are added up first.
struct DecodeWorkspace {
  int64_t counters;      // i32 [3, ctas]: arrivals at the item begun by this CTA, and at the groups
                         // that begin here; zeros between launches
  int64_t stats;         // f32 [ctas, 2, 8, 2]: m and l
  int64_t group_stats;   // f32 [ctas, 2, 8, 2]
  int64_t pieces;        // f32 [ctas, 2, 8, D]: O'
  int64_t group_pieces;  // f32 [ctas, 2, 8, D]
  int64_t bytes;

  BRAID_HOST_DEVICE DecodeWorkspace(int32_t head_dim, int32_t ctas) {
    const int64_t rows = int64_t{ctas} * 2 * kTileRows;
    counters = 0;
    stats = ctas * 3 * kMaxWarps * 4;
    group_stats = stats + rows * 8;
    pieces = group_stats + rows * 8;
    group_pieces = pieces + rows * head_dim * 4;
    bytes = group_pieces + rows * head_dim * 4;
  }
};

}  // namespace braid::cuda
