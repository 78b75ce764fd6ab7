#pragma once

#include "braid/parallel/layout_plan.h"

namespace braid {

// Tensor parallelism over P ranks divides query heads, the KV heads they read, feed-forward columns
// and vocabulary rows, as evenly as whole units allow: perhaps unevenly (9 heads on 2 ranks:
// 5 + 4; a KV head with query heads on several ranks is kept on each). A unit is a head, widened to
// whole quantization blocks of the weight that is cut along its columns.
//
// The division follows from the ops, not from the names of weights. Over ops that keep columns (a
// norm, rope, gated):
//   q, k, v   linears behind an attention's q and behind the values appended to its caches
//   o         the linear of one weight that reads an attention; a gate read beside the attention
//   up, down  a linear of one weight, and the linears it reads, if it reads nothing else and no
//             such linear is divided already
//   experts   the width of each, if an op makes the width and another reads it; not with
//             `whole_experts`, which leaves them to experts/expert_parallel.h
//   head      the linears behind the program's outputs
//
// Other weights are whole on every rank: for instance weights with several readers, and a down
// with fewer units than ranks that is narrower than its output (an adapter). A value wanted whole
// on the way (q or k normed over all heads at once) is gathered, and cut again.
//
// Fails with kInvalidArgument for fewer units than ranks, naming the number of units.
LayoutPlan tensor_parallel(const Program& program, int P, bool whole_experts = false);

}  // namespace braid
