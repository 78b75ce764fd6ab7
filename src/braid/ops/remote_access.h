#pragma once

#include <vector>

#include "braid/program/op.h"

namespace braid::ops {

// Rows and heads of a rank's copy of an operand, [B, rows, heads, D] for all sequences, read or
// written by an op.
struct BlockAccess {
  static constexpr int kSelf = -1;
  int rank = kSelf;  // the copy's rank; kSelf: this rank's own
  size_t input = 0;  // of the op
  bool writes = false;
  int64_t row = 0;
  int64_t rows = 0;
  int64_t head = 0;
  int64_t heads = 0;
};

// True if two accesses to an operand have an element in common.
bool overlap(const BlockAccess& a, const BlockAccess& b);

// Accesses of a pull, a push or a segment attention beyond OpDef::mutated_inputs: sources and
// destinations of moves, and rows of results. Of an exchange of expert rows: the slots at peers, at
// capacity, whatever the router chooses. Other ops have none; other ops access whole operands on
// their own rank.
std::vector<BlockAccess> block_accesses(const Op& op);

// For an op that pulls or pushes: the rank that has the op in its Program, and the ranks whose
// counters a push raises by 1, each once.
int rank_of(const Op& op);
std::vector<int> told_ranks(const Op& op);

// True if block_accesses() says all about this input, and OpDef::mutated_inputs nothing more.
bool accessed_by_blocks(const Op& op, size_t input);

}  // namespace braid::ops
