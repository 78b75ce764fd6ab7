#pragma once

#include <cstdint>

#include "braid/kernels/cuda/relay/relay_config.h"
#include "braid/kernels/cuda/relay/relay_steps.h"

// Offsets in a CTA's shared memory, in bytes.
namespace braid::cuda {

struct RelayLayout {
  static constexpr int kSteps = 3;  // the step being ended, the current step, the next step
  int ring;                         // [slots, kRelaySlotBytes]
  int x;                            // relay_x_bytes, or attention's data in the same place
  int barriers;                     // u64 [2, slots]: full, empty
  int steps;                        // RelayStep [kSteps], for the multiplying warps
  int ahead;                        // RelayStep [producers, 2]
  int sums;                         // f32 [num_sums]
  int squares;                      // f32 [kRelayWarps]
  int turns;                        // f32 [2, 64]: cos and sin
  int in_flight;                    // i32: copies a producer may have under way
  int bytes;

  BRAID_HOST_DEVICE RelayLayout(int x_bytes, int num_sums, int slots) {
    ring = 0;
    x = slots * kRelaySlotBytes;
    barriers = x + (x_bytes + 15) / 16 * 16;
    steps = barriers + (2 * slots * 8 + 15) / 16 * 16;
    ahead = steps + kSteps * static_cast<int>(sizeof(RelayStep));
    sums = ahead + 2 * kRelayProducers * static_cast<int>(sizeof(RelayStep));
    squares = sums + (num_sums + 3) / 4 * 16;
    turns = squares + kRelayWarps * 4;
    in_flight = turns + 2 * 64 * 4;
    bytes = in_flight + 16;
  }
};

// Offsets within x's place, for the at most two KV heads with keys on the CTA.
struct RelayAttentionLayout {
  static constexpr int kItems = 2;
  int q;       // bf16 [kItems, group, D]
  int fresh;   // bf16 [kItems, 2, D]: the newest key and value
  int raw;     // f32 [kItems, group + 2, D]: heads of q, k, v on arrival
  int pieces;  // f32 [warps, group, D + 4]: O', m, l; in raw's place
  int bytes;

  BRAID_HOST_DEVICE RelayAttentionLayout(int head_dim, int group) {
    q = 0;
    fresh = q + kItems * group * head_dim * 2;
    raw = fresh + kItems * 2 * head_dim * 2;
    pieces = raw;
    const int raw_bytes = kItems * (group + 2) * head_dim * 4;
    const int piece_bytes = kRelayWarps * group * (head_dim + 4) * 4;
    bytes = raw + (raw_bytes > piece_bytes ? raw_bytes : piece_bytes);
  }
};

}  // namespace braid::cuda
