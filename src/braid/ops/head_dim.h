#pragma once

#include "braid/program/op.h"

namespace braid::ops {

// The head dim of attention without a KV cache, which decides the rate; 0: another op.
int64_t head_dim_of(const Op& op, TypeList in);

}  // namespace braid::ops
