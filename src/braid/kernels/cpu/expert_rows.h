#pragma once

#include <vector>

#include "braid/backend/cpu/kernel_table.h"
#include "braid/fabric/symmetric_memory.h"
#include "braid/ops/expert_exchange.h"

namespace braid::cpu {

// Sends the rows of a call that begins with ops::kDispatch's inputs to the experts' ranks, the next
// rank first, straight from their source to the place that experts read; then tells the rank.
void send_expert_rows(const OpCall& call, const ops::ExchangeAttrs& attrs,
                      fabric::Endpoint& endpoint, fabric::SymmetricMemory& memory, fabric::Tag tag,
                      std::vector<fabric::Transfer>& pending);
// The same for a call with the inputs of ops::kReturnRows, and sums.
void send_expert_sums(const OpCall& call, const ops::ExchangeAttrs& attrs,
                      fabric::Endpoint& endpoint, fabric::SymmetricMemory& memory, fabric::Tag tag,
                      std::vector<fabric::Transfer>& pending);

}  // namespace braid::cpu
