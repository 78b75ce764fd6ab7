#pragma once

#include <optional>

#include "braid/kernels/cuda/decode_choice/decode_choice.h"
#include "braid/program/program.h"

namespace braid::cuda {

// What a Program's decode step is, of one of `ranks`; nothing where its capacity is not one token,
// or where its layers have no attention over a paged cache. `context` is what it is priced with.
std::optional<DecodeStep> describe_step(const Program& program, int ranks, int64_t context);

// The shape of an attention block by its op and the types of its inputs.
FusedShape fused_shape(const Op& op, TypeList in);

}  // namespace braid::cuda
