#pragma once

#include <string>
#include <utility>
#include <vector>

#include "braid/parallel/attention/lower_attention.h"
#include "braid/parallel/layout_plan.h"
#include "braid/program/program.h"

// Facts about a logical Program's attention ops, for their lowering over divided tokens.
namespace braid {

// An attention of a model.
struct AttentionLayer {
  int64_t window = 0;  // as ops::AttentionAttrs has it
  bool thins = false;  // by KeyLevels: neither the first nor the last attention, without a window
};
// A logical Program's attentions, in order.
std::vector<AttentionLayer> attention_layers(const Program& logical);

// The attention at op `index` over divided tokens, with the levels of `tokens` if it thins. Fails
// with kUnsupported on capped scores.
SequenceAttention attention_over(const Program& logical, const TokenSharding& tokens, int index);

// Types of q and k in the attention at op `index` and in following attentions, while their buffers
// stay small: a single meeting opens them all, so ranks meet once a step.
std::vector<std::pair<ValueType, ValueType>> opened_together(const Program& logical,
                                                             const TokenSharding& tokens,
                                                             int index);

// The first input of a scope.
ValueId begins_with(const Program& logical, const std::string& scope);

}  // namespace braid
