#pragma once

#include "braid/backend/cpu/kernel_table.h"
#include "braid/fabric/symmetric_memory.h"

// Places of rows and heads in sequence values, here and at peers, for the bindings of segment
// attention and its transfers.
namespace braid::cpu {

// Element strides of a packed [B, L, heads, D] view.
struct Strides {
  explicit Strides(const TensorView& x)
      : row(x.shape[2] * x.shape[3]), batch(x.shape[1] * row), head(x.shape[3]) {}
  int64_t at(int64_t b, int64_t r, int64_t h) const { return b * batch + r * row + h * head; }
  int64_t row, batch, head;
};

inline fabric::SymmetricMemory& symmetric(const LaunchArgs& args) {
  auto* memory = dynamic_cast<fabric::SymmetricMemory*>(args.arena);
  BRAID_CHECK(memory != nullptr, "{}: the arena is no symmetric memory", args.call.op->def->kind);
  return *memory;
}

}  // namespace braid::cpu
