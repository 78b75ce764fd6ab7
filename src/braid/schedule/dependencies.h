#pragma once

#include <vector>

#include "braid/program/program.h"

namespace braid {

// What must have run before each op of a Program.
struct Dependencies {
  // In the same micro-batch: makers of the inputs, and of what is written more than once (states,
  // and values that other ops fill) the accesses that conflict.
  std::vector<std::vector<int>> same;  // [ops]
  // In the micro-batches that this one continues: writers of the states that the op reads. Nothing
  // else crosses: micro-batches own different rows of values and different slots of the KV cache.
  std::vector<std::vector<int>> continued;  // [ops]
};

Dependencies dependencies_of(const Program& program);

// Values that ops write after they were made: states, and inputs that an op declares as mutated.
std::vector<bool> mutable_values(const Program& program);

// True when the op also writes its input at `index`.
bool mutates(const Op& op, size_t index);

}  // namespace braid
