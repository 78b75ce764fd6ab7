#pragma once

#include <vector>

#include "braid/program/program.h"

namespace braid {

// Ops that must have run before each op in a Program.
struct Dependencies {
  // In the same micro-batch: makers of inputs, conflicting accesses to values with several writers
  // (states, and values that other ops fill), and ops over an axis whose extent the op writes anew.
  std::vector<std::vector<int>> same;  // [ops]
  // In the micro-batches before a continuing micro-batch: writers of states that the op reads.
  // Nothing else crosses: micro-batches own different rows and different KV slots.
  std::vector<std::vector<int>> continued;  // [ops]
};

Dependencies dependencies_of(const Program& program);

// Values that ops write after their making: states, and inputs declared as mutated.
std::vector<bool> mutable_values(const Program& program);

// True when the op also writes its input at `index`.
bool mutates(const Op& op, size_t index);

}  // namespace braid
