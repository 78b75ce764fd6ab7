#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "braid/tensor/dtype.h"
#include "braid/tensor/shape.h"

namespace braid {

// The batch axes. A value with a batch axis has the axis as dimension 0; the dimension's size is a
// capacity, and a step uses the axis' extent.
enum class BatchAxis : uint8_t {
  none,
  token,     // packed tokens of all the batch's sequences
  shard,     // this rank's even part of the tokens, if ranks divide tokens
  sequence,  // the batch's sequences
  row,       // tokens with wanted logits
  // A row for each expert chosen by each token of this rank, by expert, then by token. The choosing
  // op writes this axis' extent; a launch of several micro-batches has no such rows.
  expert_row,
};
constexpr std::array<BatchAxis, 5> kBatchAxes = {
    BatchAxis::token, BatchAxis::sequence, BatchAxis::row, BatchAxis::shard, BatchAxis::expert_row};

std::string_view to_string(BatchAxis axis);

// Capacities during planning, extents during a run: each extent <= its capacity.
struct Extents {
  int64_t token = 0;
  int64_t sequence = 0;
  int64_t row = 0;
  int64_t shard = 0;
  int64_t expert_row = 0;

  // The entry of an axis other than `none`.
  constexpr const int64_t& operator[](BatchAxis axis) const {
    switch (axis) {
      case BatchAxis::shard:
        return shard;
      case BatchAxis::sequence:
        return sequence;
      case BatchAxis::row:
        return row;
      case BatchAxis::expert_row:
        return expert_row;
      case BatchAxis::token:
      case BatchAxis::none:
        break;
    }
    return token;
  }
  constexpr int64_t& operator[](BatchAxis axis) {
    return const_cast<int64_t&>(std::as_const(*this)[axis]);
  }
  constexpr int64_t of(BatchAxis axis, int64_t otherwise) const {
    return axis == BatchAxis::none ? otherwise : (*this)[axis];
  }
  constexpr Extents& operator+=(const Extents& other) {
    for (const BatchAxis axis : kBatchAxes) (*this)[axis] += other[axis];
    return *this;
  }
  bool operator==(const Extents&) const = default;
};

// A launch's part of a step's batch: a range along each batch axis.
struct BatchPart {
  Extents begin;
  Extents count;
  bool operator==(const BatchPart&) const = default;
};

struct ValueType {
  DType dtype = DType::f32;
  Shape shape;  // capacities
  BatchAxis axis = BatchAxis::none;
  bool operator==(const ValueType&) const = default;
};

std::string to_string(const ValueType& type);  // "f32[token=512, 576]"

// A value's packed bytes.
int64_t bytes_of(const ValueType& type);

using ValueId = int32_t;
constexpr ValueId kNoValue = -1;

enum class ValueKind : uint8_t {
  input,     // written by the host before each step
  weight,    // constant, named canonically ("layers.3.attn.q"), read in place from the model file
  state,     // outlives the step: the KV cache
  computed,  // made by exactly one op
};

struct Value {
  ValueKind kind = ValueKind::computed;
  ValueType type;
  std::string name;
};

}  // namespace braid
