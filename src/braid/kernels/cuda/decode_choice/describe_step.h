#pragma once

#include <optional>

#include "braid/kernels/cuda/decode_choice/decode_choice.h"
#include "braid/program/program.h"

namespace braid::cuda {

// Describes a Program's decode step on one of `ranks` ranks. Returns nothing for a capacity other
// than one token, or for layers without attention over a paged cache. `context`: keys for prices.
std::optional<DecodeStep> describe_step(const Program& program, int ranks, int64_t context);

// Shape of an attention block, from the op and its input types.
FusedShape fused_shape(const Op& op, TypeList in);

}  // namespace braid::cuda
