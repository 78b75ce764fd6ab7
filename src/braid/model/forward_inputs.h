#pragma once

#include "braid/model/family.h"
#include "braid/ops/attention.h"

namespace braid {

// Inputs of every forward pass (ops/input_names.h), written by the engine for each step.
struct ForwardInputs {
  ValueId token_ids = kNoValue;  // i32 [T]
  ValueId positions = kNoValue;  // i32 [T]
  ops::AttentionMeta meta;       // slots, q_start, kv_len, page_table
  ValueId rows = kNoValue;       // i32 [R]: the tokens whose logits are wanted
};

ForwardInputs forward_inputs(Builder& b, const ForwardShape& shape);

}  // namespace braid
