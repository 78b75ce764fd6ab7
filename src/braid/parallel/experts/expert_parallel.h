#pragma once

#include <string>
#include <vector>

#include "braid/parallel/layout_plan.h"

namespace braid {

// Experts of a Program's mixtures; 0: it has none. Fails with kUnsupported where layers differ.
int64_t experts_of(const Program& program);

// Tensor parallelism over the ranks of `parts`, with the experts divided by number in place of
// width: rank r has the experts parts[r] of every layer, uneven or none. Each rank routes all
// tokens, makes the rows of its own experts, and adds up its part of each token's sum.
LayoutPlan expert_parallel(const Program& program, const std::vector<Range>& parts);

// The same with the experts divided as evenly as whole experts allow over `ep` of P ranks. Fails
// with kInvalidArgument, naming both numbers, for a model without experts, for more ranks than
// experts, and for an `ep` that is neither 1 nor P: 1 divides widths, as tensor_parallel() does.
LayoutPlan expert_parallel(const Program& program, int P, int ep);

// The plan with rows divided as well, between blocks and for the exchange (exchange.h): what each
// token computes beside its experts, the shared experts, is whole on every rank.
LayoutPlan with_divided_rows(LayoutPlan plan, const Program& program);

// How a rank's Program has the experts of its mixtures, in words; empty: it has none.
std::string expert_placement(const Program& of_rank, int P);

}  // namespace braid
