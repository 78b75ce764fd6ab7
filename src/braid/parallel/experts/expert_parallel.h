#pragma once

#include <string>
#include <vector>

#include "braid/parallel/layout_plan.h"

namespace braid {

// Experts in a Program's mixtures; 0: no mixture. Fails with kUnsupported if layers differ.
int64_t experts_of(const Program& program);

// Tensor parallelism over the ranks in `parts`, with experts divided by number in place of width:
// rank r has the experts parts[r] of every layer, uneven or none. Each rank routes all tokens,
// makes its own experts' rows, and adds up its part of each token's sum.
LayoutPlan expert_parallel(const Program& program, const std::vector<Range>& parts);

// A model's ranks: `groups` groups, each with its own sequences, have `tp` ranks that divide
// attention's heads. Over all ranks, in order, `ep` even sets divide the experts by number, and a
// set's ranks divide an expert's width; 1: each group has all experts, divided by width.
struct RankDegrees {
  int tp = 1;
  int ep = 1;
  int groups = 1;
  int64_t expert_memory = 0;  // of the plan

  int ranks() const { return tp * groups; }
};

// The plan of all ranks. With several groups the head's rows are divided over all ranks. Fails with
// kInvalidArgument, naming both numbers, for a model without experts, for an `ep` above the experts
// or the ranks, and where a width has fewer blocks than its set has ranks.
LayoutPlan expert_parallel(const Program& program, const RankDegrees& degrees);

// Sets of ranks that divide a plan's experts.
int expert_sets(const LayoutPlan& plan);

// The plan with rows divided as well, between blocks and for the exchange (exchange.h): what each
// token computes beside its experts, the shared experts, is whole on every rank.
LayoutPlan with_divided_rows(LayoutPlan plan, const Program& program);

// Slots of a rank for another's rows in a round of the exchange, of S rows at capacity: as many as
// the plan's expert_memory holds, 1 at least.
int64_t exchange_room(const LayoutPlan& plan, const Program& program, int64_t S);

// Text: the place of a rank's experts; empty: the Program has no experts.
std::string expert_placement(const Program& of_rank, int P);

}  // namespace braid
