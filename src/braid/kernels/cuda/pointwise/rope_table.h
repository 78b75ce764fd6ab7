#pragma once

#include <cstdint>
#include <vector>

#include "braid/ops/rope.h"

namespace braid::cuda {

// The rope kernels' angles: each pair's turns per position, modulo a full turn, in units of 2^-64
// turn: [rotary_dim / 2]. A position times an entry, modulo 2^64, is then the reduced angle: no
// rounding grows with the position, and the frequency's only rounding is its f64. `factors`
// [rotary_dim / 2] or null, as in ops::rope_frequencies.
std::vector<uint64_t> rope_turns(const ops::RopeAttrs& attrs, const float* factors);

}  // namespace braid::cuda
