#pragma once

#include "braid/parallel/layout_plan.h"

namespace braid {

// Tensor parallelism over P ranks: query heads, the KV heads that they read, feed-forward columns
// and vocabulary rows are divided, as evenly as whole units allow, which need not be evenly (9
// heads on 2 ranks: 5 + 4; a KV head whose query heads are on several ranks is kept on each). A
// unit is a head, widened until it is whole quantization blocks of the weight that is cut along its
// columns.
//
// What is divided follows from the ops, whatever weights are called. Over ops that keep columns (a
// norm, rope, gated):
//   q, k, v   the linears that an attention's q and what is appended to its caches are made of
//   o         the linear of one weight that reads an attention; a gate that it reads with it
//   up, down  a linear of one weight, and the linears that it reads, where it reads nothing
//             else and none of them is divided already
//   experts   the width of each, where one op makes it and another reads it
//   head      the linears that the program's outputs are made of
// Other weights are whole on every rank, and so are those that several ops read and a down with
// fewer units than ranks that is narrower than what it makes (an adapter). A value that is
// wanted whole on the way (q or k normed over all heads at once) is gathered, and cut again.
// Fails with kInvalidArgument when there are fewer units than ranks, saying how many there are.
LayoutPlan tensor_parallel(const Program& program, int P);

}  // namespace braid
