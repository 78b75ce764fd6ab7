#pragma once

#include "braid/ops/linear.h"
#include "braid/ops/route.h"

namespace braid::ops {

// The feed-forward blocks of E experts, each over rows assigned by kRoute, and the sum over a
// token's experts. R rows; expert e has begin[e] .. begin[e + 1]; weights are [E, N, K] of any
// dtype, biases [E, N] or absent.

// y[r] = act(W_gate[e] x[token[r]] + b_gate[e]) * (W_up[e] x[token[r]] + b_up[e])
// Inputs: x [T, K] of any float, token i32 [R], begin i32 [E + 1], W_gate and W_up [E, F, K],
// b_gate and b_up [E, F]. Output: y [R, F] with the dtype of x. Sharding: the same rows of W_gate
// and W_up on a rank shard y; so do a rank's tokens, and a rank's experts.
extern const OpDef kExpertGated;

// y[r] = W[e] x[r] + b[e]
// Inputs: x [R, K] of any float, begin i32 [E + 1], W [E, N, K], b [E, N].
// Output: y [R, N] with the dtype of x.
// Sharding: columns of W make y a partial sum, to which rank 0 alone adds the bias; a rank's
// experts make the rows of y.
struct ExpertLinearAttrs {
  bool bias_elsewhere = false;  // this rank leaves the bias to another
  bool operator==(const ExpertLinearAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    if (bias_elsewhere) f("bias_elsewhere", bias_elsewhere);
  }
};
extern const OpDef kExpertLinear;
// True for ops that multiply by the experts' weights.
inline bool reads_experts(const Op& op) {
  return op.def == &kExpertGated || op.def == &kExpertLinear;
}

// y[t] = sum over j of weight[t, j] x[place[t, j]] + sigmoid(gate[t]) shared[t], in f32 and in that
// order, over the j with a place of 0 or more; without a gate its factor is 1.
// Inputs: weight f32 [T, k], place i32 [T, k], x [R, C], shared [T, C] or absent, gate f32 [T, 1]
// or absent. Output: y [T, C] with the dtype of x. Sharding: a partial x, or rows of a rank's
// experts, make y a partial sum; a shared that is whole is added by rank 0 alone.
struct CombineAttrs {
  bool shared_elsewhere = false;  // this rank leaves `shared` to another
  bool operator==(const CombineAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    if (shared_elsewhere) f("shared_elsewhere", shared_elsewhere);
  }
};
extern const OpDef kCombine;

struct ExpertWeights {
  LinearWeights gate, up, down;
};
// The experts' result for x [T, C] -> [T, C]. `shared` and `shared_gate` as in kCombine.
ValueId experts(Builder& b, ValueId x, const Route& route, const ExpertWeights& weights,
                Activation activation, ValueId shared = kNoValue, ValueId shared_gate = kNoValue);

// Number of E experts chosen by any of T tokens with k choices each, if choices are even.
double experts_chosen(int64_t E, double k, double T);

}  // namespace braid::ops
