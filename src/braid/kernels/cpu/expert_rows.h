#pragma once

#include <vector>

#include "braid/backend/cpu/kernel_table.h"
#include "braid/fabric/symmetric_memory.h"
#include "braid/ops/expert_exchange.h"

namespace braid::cpu {

// Puts the rows of a call that begins with the inputs of ops::kDispatch under way to the experts'
// ranks, the next rank first, each from where it is to where experts read it; then tells the rank.
void send_expert_rows(const OpCall& call, const ops::ExchangeAttrs& attrs,
                      fabric::Endpoint& endpoint, fabric::SymmetricMemory& memory, fabric::Tag tag,
                      std::vector<fabric::Transfer>& pending);

}  // namespace braid::cpu
