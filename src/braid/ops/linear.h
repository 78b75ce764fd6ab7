#pragma once

#include <optional>
#include <vector>

#include "braid/program/builder.h"

namespace braid::ops {

// y_i = x W_i^T + b_i for n weights that share their input: one read of x, n products.
// Inputs: x [T, K] of any float, W_0..W_{n-1} [N_i, K] of any dtype, b_0..b_{n-1} [N_i] or absent.
// Outputs: y_0..y_{n-1} [T, N_i].
// Sharding: rows of a W (column parallel) shard y; columns of W (row parallel) make y a partial
// sum, to which rank 0 alone adds the bias.
struct LinearAttrs {
  int n = 1;
  bool bias_elsewhere = false;  // this rank leaves the bias to another
  DType dtype = DType::f32;     // of the outputs
  bool operator==(const LinearAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("n", n);
    if (bias_elsewhere) f("bias_elsewhere", bias_elsewhere);
    if (dtype != DType::f32) f("dtype", name(dtype));
  }
};

extern const OpDef kLinear;

struct LinearWeights {
  ValueId w = kNoValue;
  ValueId bias = kNoValue;
};
std::vector<ValueId> linears(Builder& b, ValueId x, const std::vector<LinearWeights>& weights,
                             DType dtype = DType::f32);
ValueId linear(Builder& b, ValueId x, LinearWeights weights, DType dtype = DType::f32);

// The gate of a feed-forward block: y = act(gate) * up, [T, F] each.
enum class Activation : uint8_t { silu, gelu_tanh };
std::string_view to_string(Activation activation);
float activate(Activation activation, float x);  // as the scalar references compute it

struct GatedAttrs {
  Activation activation = Activation::silu;
  bool operator==(const GatedAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("activation", to_string(activation));
  }
};

extern const OpDef kGated;
ValueId gated(Builder& b, ValueId gate, ValueId up, GatedAttrs attrs);

// Fused linear with two weights and gated: (x, W_gate, W_up, b_gate, b_up) -> y [T, F]
// with the dtype of x.
extern const OpDef kGatedLinear;

}  // namespace braid::ops
