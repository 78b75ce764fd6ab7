#pragma once

#include <cstdint>

#include "braid/ops/dual_chunks.h"

namespace braid::cuda {

// ops::DualChunks as kernels read it.
struct DualTurns {
  const uint64_t* turns = nullptr;  // device [pairs], rope_turns() of the model's RoPE
  int64_t reach = 0;
  int32_t chunk = 0;     // 0: plain attention
  int32_t original = 0;  // 0: logits do not grow
  int32_t pairs = 0;     // of columns that turn
  bool interleaved = false;
};

inline DualTurns dual_turns(const ops::DualChunks& dual, const uint64_t* turns) {
  return {.turns = turns,
          .reach = dual.reach,
          .chunk = static_cast<int32_t>(dual.chunk),
          .original = static_cast<int32_t>(dual.original),
          .pairs = static_cast<int32_t>(dual.rope.rotary_dim / 2),
          .interleaved = dual.rope.pairing == ops::RopePairing::interleaved};
}

}  // namespace braid::cuda
