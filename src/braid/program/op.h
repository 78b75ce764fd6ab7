#pragma once

#include <span>
#include <string>
#include <vector>

#include "braid/program/attrs.h"
#include "braid/program/op_traits.h"
#include "braid/program/sharding.h"
#include "braid/program/value.h"
#include "braid/tensor/view.h"

namespace braid {

struct OpDef;

// An operation of a Program: a computation on values. `inputs` and `outputs` are in the
// definition's order; an absent optional input is kNoValue.
struct Op {
  const OpDef* def = nullptr;
  Attrs attrs;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::string scope;  // "layers.3.attn"
  std::string tag;    // for partition rules by mark()
};

// The tensors of a call, in the order of the op's inputs and outputs; an absent input has no data.
// Shapes are capacities. `part` gives the call's range of each batch axis: views already begin at
// the range's begin, and metadata with row numbers (q_start, rows) count from the whole batch's
// first row.
struct OpCall {
  const Op* op = nullptr;
  std::span<const TensorView> in;
  std::span<const TensorView> out;
  BatchAxis axis = BatchAxis::none;  // the first input's
  BatchPart* part = nullptr;         // an op that writes an axis' extent writes here

  const Extents& extents() const { return part->count; }
  // Live rows of the operands on the call's axis.
  int64_t rows() const { return extents().of(axis, in[0].shape[0]); }
  template <class T>
  const T& attrs() const {
    return op->attrs.as<T>();
  }
};

// How much work a step is, beyond its extents.
struct Work {
  Extents extents;
  int64_t attended = 0;   // (query, key) pairs that causal attention visits, over all sequences
  int64_t kv_tokens = 0;  // keys in the cache that are read, over all sequences
};

struct Cost {
  double flops = 0;
  double bytes = 0;       // device memory, each operand once
  double wire_bytes = 0;  // sent by this rank
  Cost& operator+=(const Cost& other) {
    flops += other.flops;
    bytes += other.bytes;
    wire_bytes += other.wire_bytes;
    return *this;
  }
};

// An op's required input placements, and its output placements, along a mesh axis.
struct ShardRule {
  std::vector<Placement> inputs;  // as the op needs them; the lowering converts others
  std::vector<Placement> outputs;
};

// The contract of a kind of op. ops/ defines a contract per kind; a user's library may define more.
// All functions are pure. Input and output types are in the op's order; absent inputs have rank 0.
struct OpDef {
  std::string_view kind;

  // Shape rule: output types from input types; fails with kInvalidArgument naming the dimension.
  std::vector<ValueType> (*infer)(const Attrs& attrs, TypeList in);

  // Inputs (by index) that the op also writes, like kv_append's KV cache.
  std::vector<int> mutated_inputs;

  // The axis whose extent the op writes during a step: rows known only to a router.
  BatchAxis writes_extent = BatchAxis::none;

  Cost (*cost)(const Attrs& attrs, TypeList in, TypeList out, const Work& work);

  // Sharding rule over P ranks, given where the inputs are.
  ShardRule (*shard)(const Attrs& attrs, TypeList in, std::span<const Placement> placed, int P);

  // The attributes for `rank` under a rule's input placements; null: the same on every rank.
  Attrs (*localize)(const Attrs& attrs, TypeList in, const ShardRule& rule, int rank) = nullptr;

  // Scalar reference on host memory, over extents; null for communication ops.
  void (*reference)(const OpCall& call) = nullptr;

  // A communication op without other ranks: the op reads or writes peers' values in symmetric
  // memory, and other ops order the access. False: a collective, in which every rank of the group
  // meets the others.
  bool one_sided = false;

  // Traits by which Schedules are made and priced (op_traits.h).
  RemoteUse remote = RemoteUse::none;
  // One-sided transfers of a call, over `work`'s extents; null: none.
  std::vector<Transfer> (*transfers)(const Attrs& attrs, TypeList in, const Work& work) = nullptr;
  CollectiveTraits collective = {};
  RateTraits rate = {};
  const PhaseTraits* phases = nullptr;  // null: a single phase
  bool runs = true;                     // false: its outputs have no contents yet, and nothing runs
};

}  // namespace braid
