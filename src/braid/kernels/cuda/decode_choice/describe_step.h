#pragma once

#include <optional>

#include "braid/kernels/cuda/decode_choice/decode_choice.h"
#include "braid/program/program.h"

namespace braid::cuda {

// Describes a rank's Program of a decode step: one token, or several of as many sequences. Returns
// nothing for other capacities, or for layers without attention over a paged cache. `context`: keys
// of each token for prices.
std::optional<DecodeStep> describe_step(const Program& program, int64_t context);

// Shape of an attention block, from the op and its input types.
FusedShape fused_shape(const Op& op, TypeList in);

}  // namespace braid::cuda
