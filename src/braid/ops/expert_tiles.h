#pragma once

#include "braid/ops/expert_exchange.h"
#include "braid/ops/experts.h"

// The exchange of expert rows fused with the experts' products. A tile is a sender's rows: ranks
// send and compute tile by tile, the first tile while the others travel. Strategies ask for these
// ops by kind, in place of a run of ops (find_replacement). A row has the bits of the replaced ops
// if a kernel's sums do not depend on the rows beside it.
namespace braid::ops {

// dispatch, sync, expert_gated: sends this rank's rows, then computes own rows, then each other
// rank's, after the rank's push was counted.
// (arrivals, x [S, C], back i32 [S, P], rows [P B, C], token i32 [R], begin i32 [H + 1],
//  W_gate and W_up [H, F, C], b_gate and b_up [H, F]) -> h [R, F]
struct DispatchGatedAttrs {
  ExchangeAttrs exchange;
  Activation activation = Activation::silu;
  bool operator==(const DispatchGatedAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    exchange.fields(f);
  }
};
extern const OpDef kDispatchGated;

// expert_linear, combine, return_rows: the results of each other rank's rows are summed and leave
// for the rank while the next are computed; own rows come last.
// (arrivals, chosen, h [R, F], returned [P S, C], weight f32 [P B, k], place i32 [P B, k],
//  begin i32 [H + 1], W [H, C, F], b [H, C], token i32 [R]) -> ()
struct LinearReturnAttrs {
  ExchangeAttrs exchange;
  bool bias_elsewhere = false;
  bool operator==(const LinearReturnAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    exchange.fields(f);
    if (bias_elsewhere) f("bias_elsewhere", bias_elsewhere);
  }
};
extern const OpDef kLinearReturn;

// The fused op for such a run of ops (Fusion::make).
std::optional<Op> make_dispatch_gated(const Program& program, std::span<const Op> run);
std::optional<Op> make_linear_return(const Program& program, std::span<const Op> run);

// The tile of rank p's rows, expert by expert: expert e has begin[e + 1] - begin[e] of them, from
// row first[e] on. token i32 [R] and rows i32 [H + 1] are arrange's; begin [H + 1], first [H].
void tile_of(const ExchangeAttrs& attrs, int p, const int32_t* token, const int32_t* rows,
             int32_t* begin, int32_t* first);

}  // namespace braid::ops
