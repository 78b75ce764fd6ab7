#pragma once

#include <cstdint>

#include "braid/kernels/cuda/fused_attention/fused_config.h"
#include "braid/kernels/cuda/shares.h"

// Where things lie in a CTA's shared memory, in bytes, and how rows are dealt to CTAs.
namespace braid::cuda {

// Rows of a KV head's q, k and v, dealt to the cluster's CTAs in whole slots.
struct FusedHeadRows {
  FusedRows form;
  Shares groups;  // of form.rows rows
  int total;

  BRAID_HOST_DEVICE FusedHeadRows(int width, int group, int head_dim, int cluster)
      : form(fused_rows(width)),
        groups((group + 2) * head_dim / form.rows, cluster),
        total((group + 2) * head_dim) {}
  BRAID_HOST_DEVICE int begin(int rank) const { return groups.begin(rank) * form.rows; }
  BRAID_HOST_DEVICE int end(int rank) const { return groups.end(rank) * form.rows; }
  BRAID_HOST_DEVICE int most() const {
    return (groups.each + (groups.more > 0 ? 1 : 0)) * form.rows;
  }
};

struct FusedLayout {
  int ring;      // [slots, kFusedSlotBytes]
  int inbox;     // [kExchangeTurns, inbox_bytes]
  int x;         // bf16 [max(width, heads * D)], in RelayDot's order
  int sums;      // f32 [most rows, parts]
  int pieces;    // f32 [warps, group, D + 4]: O', m, l
  int part;      // this CTA's f32 [group, D + 4], or bf16 [most rows of q k v]
  int q;         // f32 [group, D]
  int fresh;     // bf16 [2, D]: the newest key and value
  int turns;     // f32 [2, 64]: cos and sin
  int barriers;  // u64 [2, slots]: full, empty
  int arrivals;  // u64 [kExchangeTurns, kExchangeRounds]
  int squares;   // f32 [warps]
  int flow;      // i32: copies a producer may have under way
  int scores;    // f32 [2, kFusedWarps, group, fused_keys] of divided heads: this CTA's, all CTAs'
  int bytes;

  // `sums`: f32 in the phase with the most sums.
  BRAID_HOST_DEVICE FusedLayout(int slots, int inbox_bytes, int x_elems, int num_sums, int group,
                                int head_dim, int head_rows, int num_scores) {
    const int piece = group * (head_dim + 4) * 4;
    const auto lines = [](int n) { return (n + 15) / 16 * 16; };
    ring = 0;
    inbox = slots * kFusedSlotBytes;
    x = inbox + kExchangeTurns * inbox_bytes;
    sums = x + lines(2 * x_elems);
    pieces = sums + lines(4 * num_sums);
    part = pieces + kFusedWarps * piece;
    q = part + lines(piece > 2 * head_rows ? piece : 2 * head_rows);
    fresh = q + group * head_dim * 4;
    turns = fresh + 2 * head_dim * 2;
    barriers = turns + 2 * 64 * 4;
    arrivals = barriers + 2 * slots * 8;
    squares = arrivals + kExchangeTurns * kExchangeRounds * 8;
    flow = squares + kFusedWarps * 4;
    scores = flow + 16;
    bytes = scores + 4 * num_scores;
  }
};

}  // namespace braid::cuda
