#pragma once

#include "braid/ops/expert_exchange.h"
#include "braid/ops/experts.h"

// The first products of the experts of a micro-batch, and the rows or the sums of another
// micro-batch, which travel while the products run. Strategies ask for the op by kind in place of
// expert_gated and dispatch ("gated_dispatch"), or of expert_gated and return_rows
// ("gated_return").
namespace braid::ops {

struct GatedPushAttrs {
  ExchangeAttrs exchange;  // of the push
  bool returns = false;    // return_rows; otherwise dispatch
  Activation activation = Activation::silu;
  bool operator==(const GatedPushAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    exchange.fields(f);
    f("returns", returns);
  }
};

// (the inputs of kExpertGated, the inputs of kDispatch or kReturnRows) -> h [R, F]
extern const OpDef kGatedPush;
constexpr size_t kGatedPushFirst = 7;  // the push's first input

// The fused op for such ops (Fusion::make).
std::optional<Op> make_gated_push(const Program& program, std::span<const Op> ops);

}  // namespace braid::ops
