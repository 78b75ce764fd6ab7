#pragma once

#include <vector>

#include "braid/ops/fusion.h"
#include "braid/ops/unary.h"

namespace braid::ops {

// A linear layer with a function behind it, whose result may stand right of other columns:
//   y = [front, f(x W^T + bias)]
// Inputs: x [T, K], W [N, K], bias [N] or absent, front [T, F] or absent, any float.
// Output: [T, F + N] of `dtype`, which front has, too.
struct LinearUnaryAttrs {
  UnaryFunction function = UnaryFunction::gelu_tanh;
  DType dtype = DType::f32;
  bool operator==(const LinearUnaryAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("function", to_string(function));
    if (dtype != DType::f32) f("dtype", name(dtype));
  }
};

extern const OpDef kLinearUnary;

// For backends with products that end with gelu_tanh in bf16 or f16: linear, unary, and a following
// concat_columns, in networks without a batch axis.
const std::vector<Fusion>& linear_unary_fusions();

}  // namespace braid::ops
