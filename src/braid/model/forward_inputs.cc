#include "braid/model/forward_inputs.h"

namespace braid {

ForwardInputs forward_inputs(Builder& b, const ForwardShape& shape) {
  const int64_t T = shape.capacity.token, S = shape.capacity.sequence;
  const auto input = [&](const char* name, const Shape& of, BatchAxis axis) {
    return b.input(name, {DType::i32, of, axis});
  };
  ForwardInputs in;
  in.token_ids = input("token_ids", {T}, BatchAxis::token);
  in.positions = input("positions", {T}, BatchAxis::token);
  in.meta.slots = input("slots", {T}, BatchAxis::token);
  in.meta.q_start = input("q_start", {S + 1}, BatchAxis::sequence);
  in.meta.kv_len = input("kv_len", {S}, BatchAxis::sequence);
  in.meta.page_table = input("page_table", {S, shape.pages_per_sequence}, BatchAxis::sequence);
  in.rows = input("rows", {shape.capacity.row}, BatchAxis::row);
  return in;
}

}  // namespace braid
