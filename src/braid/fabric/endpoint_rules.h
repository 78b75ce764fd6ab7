#pragma once

#include <string>

#include "braid/fabric/fabric.h"

// Common checks of every endpoint's verbs, with messages.
namespace braid::fabric {

// Breaks an invariant unless `peer` is of the world and the block lies in the buffer; `stride` is
// the block's on the side of `at`.
void check_range(const Endpoint& endpoint, SymPtr<std::byte> at, int peer, const Block& block,
                 int64_t stride);

// Fails with kInvalidArgument on a count below 0 or a size that overflows.
int64_t buffer_bytes(int64_t count, int64_t elem_bytes, std::string_view name);

// "'tag', signal 3 of 'flags' from rank 1: expected 2, seen 1"
std::string describe_wait(const std::string& tag, SymPtr<Signal> slot, const WaitFor& what,
                          uint64_t expected, uint64_t seen);

// "'tag', put of 64 bytes to rank 1"
std::string describe_transfer(const std::string& tag, Verb verb, int64_t bytes, int peer);

}  // namespace braid::fabric
