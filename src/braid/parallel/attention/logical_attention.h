#pragma once

#include <string>
#include <utility>
#include <vector>

#include "braid/parallel/attention/lower_attention.h"
#include "braid/parallel/layout_plan.h"
#include "braid/program/program.h"

// Facts about a logical Program's attention ops, for their lowering over divided tokens.
namespace braid {

// The attention at op `index` over divided tokens. The first and the last attention, and attentions
// with a window, keep all keys. Fails with kUnsupported on capped scores.
SequenceAttention attention_over(const Program& logical, const TokenSharding& tokens, int index);

// Types of q and k in the attention at op `index` and in following attentions, while their buffers
// stay small: a single meeting opens them all, so ranks meet once a step.
std::vector<std::pair<ValueType, ValueType>> opened_together(const Program& logical,
                                                             const TokenSharding& tokens,
                                                             int index);

// The first input of a scope.
ValueId begins_with(const Program& logical, const std::string& scope);

}  // namespace braid
