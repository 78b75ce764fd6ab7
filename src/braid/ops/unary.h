#pragma once

#include "braid/program/builder.h"

namespace braid::ops {

// y = f(x), element by element: [T, C] of any float, y as x.
//   silu        x / (1 + e^-x)
//   gelu_tanh   x / 2 * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
//   quick_gelu  x / (1 + e^(-1.702 x))
enum class UnaryFunction : uint8_t { silu, gelu_tanh, quick_gelu };
std::string_view to_string(UnaryFunction function);

struct UnaryAttrs {
  UnaryFunction function = UnaryFunction::silu;
  bool operator==(const UnaryAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("function", to_string(function));
  }
};

extern const OpDef kUnary;
ValueId unary(Builder& b, ValueId x, UnaryFunction function);

}  // namespace braid::ops
