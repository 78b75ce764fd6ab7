#pragma once

#include <memory>

#include "braid/schedule/op_scheduler.h"

namespace braid {

// For a prompt with divided products (parallel/divided_prompt.h): between blocks each rank keeps a
// part of the tokens. Sum, residual and norm are a single op in the order of the computation; keys
// move beside the computation, or `in_order` too, on a single stream.
std::unique_ptr<OpScheduler> token_sharded_strategy(bool in_order = false);

}  // namespace braid
