#pragma once

#include <optional>
#include <string>
#include <vector>

#include "braid/program/op.h"

namespace braid {

// A computation: ops on values in single-assignment form, in an order that respects their
// dependencies. Plain data; built by Builder, checked by verify().
struct Program {
  std::string name;
  Extents capacity;
  std::vector<Value> values;
  std::vector<Op> ops;
  std::vector<ValueId> outputs;
  int expert_ranks = 1;  // ranks that divide expert rows; the capacity counts all ranks' rows

  const Value& value(ValueId id) const { return values.at(id); }
  std::optional<ValueId> find(std::string_view value_name) const;

  // Most expert rows of `tokens` tokens: as many per token as in the whole batch.
  int64_t expert_rows(int64_t tokens) const {
    return capacity.token > 0 ? ceil_div(tokens * capacity.expert_row, capacity.token) : 0;
  }

  // Expert rows on a rank, for even choices.
  int64_t even_expert_rows(int64_t tokens) const {
    return ceil_div(expert_rows(tokens), int64_t{expert_ranks});
  }

  // A value's type in a part of the batch with this capacity.
  ValueType type_of(ValueId id, const Extents& part) const;
  // Types of an op's operands, in the whole batch or in a part; an absent input has rank 0.
  std::vector<ValueType> input_types(const Op& op) const { return input_types(op, capacity); }
  std::vector<ValueType> output_types(const Op& op) const { return output_types(op, capacity); }
  std::vector<ValueType> input_types(const Op& op, const Extents& part) const;
  std::vector<ValueType> output_types(const Op& op, const Extents& part) const;
  Cost cost(const Op& op, const Work& work) const;
};

// One line per op: "%7 = rms_norm(%3, layers.0.attn.norm) {eps=1e-05} : f32[token=1, 576]  #
// scope".
std::string to_string(const Program& program);

// Throws std::logic_error with the op's line if a value is read before it is made or made twice, an
// operand id is out of range, a type is not what the op's shape rule gives, or names of inputs,
// weights and states are not unique.
void verify(const Program& program);

}  // namespace braid
