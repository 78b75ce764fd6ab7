#pragma once

#include <cstdint>

#include "braid/kernels/cuda/relay/relay_config.h"
#include "braid/kernels/cuda/relay/relay_steps.h"

// Where things lie in a CTA's shared memory, in bytes.
namespace braid::cuda {

struct RelayLayout {
  static constexpr int kSteps = 3;  // one that warps end, one they are at, one that comes
  int ring;                         // [slots, kRelaySlotBytes]
  int x;                            // relay_x_bytes, or what attention has in its place
  int barriers;                     // u64 [2, slots]: full, empty
  int steps;                        // RelayStep [kSteps]: of the warps that multiply
  int ahead;                        // RelayStep [producers, 2]
  int sums;                         // f32 [num_sums]
  int squares;                      // f32 [kRelayWarps]
  int turns;                        // f32 [2, 64]: cos and sin
  int in_flight;                    // i32: copies of a producer that may be on their way
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

// In the place of x, of the at most two KV heads of which a CTA has keys.
struct RelayAttentionLayout {
  static constexpr int kItems = 2;
  int q;       // bf16 [kItems, group, D]
  int fresh;   // bf16 [kItems, 2, D]: the newest key and value
  int raw;     // f32 [kItems, group + 2, D]: heads of q, k, v as they arrive
  int pieces;  // f32 [warps, group, D + 4]: O', m, l; in the place of raw
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
