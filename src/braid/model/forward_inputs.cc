#include "braid/model/forward_inputs.h"

#include "braid/ops/input_names.h"

namespace braid {

ForwardInputs forward_inputs(Builder& b, const ForwardShape& shape) {
  const int64_t T = shape.capacity.token, S = shape.capacity.sequence;
  const auto input = [&](const char* name, const Shape& of, BatchAxis axis) {
    return b.input(name, {DType::i32, of, axis});
  };
  ForwardInputs in;
  in.token_ids = input(inputs::kTokenIds, {T}, BatchAxis::token);
  in.positions = input(inputs::kPositions, {T}, BatchAxis::token);
  in.meta.slots = input(inputs::kSlots, {T}, BatchAxis::token);
  in.meta.q_start = input(inputs::kQStart, {S + 1}, BatchAxis::sequence);
  in.meta.kv_len = input(inputs::kKvLen, {S}, BatchAxis::sequence);
  in.meta.page_table =
      input(inputs::kPageTable, {S, shape.pages_per_sequence}, BatchAxis::sequence);
  in.rows = input(inputs::kRows, {shape.capacity.row}, BatchAxis::row);
  return in;
}

}  // namespace braid
