#pragma once

#include "braid/parallel/layout_plan.h"

namespace braid {

// Tensor parallelism over P ranks: query heads, the KV heads that they read, feed-forward columns
// and vocabulary rows are divided, as evenly as whole units allow, which need not be evenly (9
// heads on 2 ranks: 5 + 4; a KV head whose query heads are on several ranks is kept on each). A
// unit is a head, widened until it is whole quantization blocks of the weight that is cut along its
// columns.
//
// Reads the weights' canonical names: attn.{q,k,v,o}, mlp.{gate,up,down}, lm_head.
// Fails with kInvalidArgument when there are fewer units than ranks, saying how many there are.
LayoutPlan tensor_parallel(const Program& program, int P);

}  // namespace braid
