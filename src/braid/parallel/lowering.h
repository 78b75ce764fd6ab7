#pragma once

#include "braid/parallel/layout_plan.h"

namespace braid {

// One rank's Program: local shapes, and communication ops where placements meet that differ.
struct RankProgram {
  Program program;
  int rank = 0;
  std::vector<Placement> placements;  // [values] along the plan's axis, of the logical value
};

// Walks the logical Program once and propagates the plan: each op's sharding rule says where its
// inputs must be and where its outputs are. A partial sum that is needed whole becomes an
// all_reduce, a shard an all_gather; where placements agree there is no communication. Program
// outputs are whole on every rank. Fails with kUnsupported, naming the op, where the rule asks for
// what no conversion gives. Pure; the result for each rank 0..P-1.
std::vector<RankProgram> lower(const Program& program, const LayoutPlan& plan);

}  // namespace braid
