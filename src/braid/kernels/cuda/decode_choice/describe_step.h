#pragma once

#include <optional>

#include "braid/kernels/cuda/decode_choice/decode_choice.h"
#include "braid/program/program.h"

namespace braid::cuda {

// Describes a rank's Program for a decode step: a single token, or a token for each of several
// sequences. Returns nothing for other capacities, or for layers without attention over a paged
// cache. `context`: each token's keys, for prices.
std::optional<DecodeStep> describe_step(const Program& program, int64_t context);

// Bytes of the matrices in a decode step's product; 0: another op.
int64_t product_bytes(const Program& program, const Op& op);

// An attention block's shape, from the op and its input types.
FusedShape fused_shape(const Op& op, TypeList in);

}  // namespace braid::cuda
