#pragma once

#include <vector>

#include "braid/ops/fusion.h"
#include "braid/ops/rope_append.h"

namespace braid::ops {

// Fused rope of q and k, each with an optional norm of its heads before, and to_sequence of q, k
// and v: (q, k, v, positions, factors, q_norm, k_norm) -> q', k', v' [sequence = 1, n, H, D].
// Attributes are RopeAppendAttrs.
extern const OpDef kRopeSequence;

// For backends with the op: q, k and v of one dtype.
const std::vector<Fusion>& rope_sequence_fusions();

}  // namespace braid::ops
