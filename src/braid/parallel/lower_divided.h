#pragma once

#include "braid/parallel/attention/lower_attention.h"
#include "braid/parallel/lowering.h"

namespace braid {

// As lower() with these kernels, with attention over divided rows as `division` says.
std::vector<RankProgram> lower_divided(const Program& program, const LayoutPlan& plan,
                                       AttentionDivision division);

}  // namespace braid
