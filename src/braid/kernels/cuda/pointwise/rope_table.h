#pragma once

#include <cstdint>
#include <vector>

#include "braid/ops/rope.h"

namespace braid::cuda {

// What the rope kernels turn by: turns per position of each pair, modulo one, in units of 2^-64 of
// a turn: [rotary_dim / 2]. A position times an entry, modulo 2^64, is then the reduced angle: no
// rounding grows with the position, and none of the frequency beyond that of its f64.
// `factors` [rotary_dim / 2] or null, as of ops::rope_frequencies.
std::vector<uint64_t> rope_turns(const ops::RopeAttrs& attrs, const float* factors);

}  // namespace braid::cuda
