#pragma once

#include <cstdint>
#include <string>

#include "braid/backend/cpu/team.h"
#include "braid/fabric/collectives/all_reduce.h"
#include "braid/kernels/cpu/isa.h"

namespace braid::cpu {

// A reduction of partial sums, the addition of the residual, and a norm, row by row: finished rows
// travel to the other ranks while later rows are summed. Rank q has rows even_part(T, P, q), S_q
// rows. All operands are packed and disjoint.
struct ReduceNormParams {
  const float* x = nullptr;  // [T, C], this rank's summand
  const float* r = nullptr;  // residual: [T, C], or [S, C] if divided over tokens
  const float* w = nullptr;  // [C]
  float* s = nullptr;        // as r: residual + sum
  float* y = nullptr;        // [T, C]
  int64_t rows = 0;          // T
  int64_t cols = 0;          // C
  float eps = 0;
};

// Rows per round and Comm's lane, equal on all ranks.
struct ReduceNormConfig {
  fabric::AllReduceAlgorithm algorithm = fabric::AllReduceAlgorithm::two_shot;
  int64_t round_rows = 1;
  int lanes = 1;
  bool operator==(const ReduceNormConfig&) const = default;
};
std::string to_string(const ReduceNormConfig& config);  // "two_shot, rounds of 16 rows, 2 lanes"

struct ReduceNormDesc {
  int64_t rows = 0, cols = 0;
  int ranks = 1;
  Link link;               // slowest of the group; 0 bytes/s: memory
  int64_t slot_bytes = 0;  // of the Comm, at least a row
  int lanes = 1;           // of the Comm
  bool divided = false;    // the residual is: always two-shot
};
// Pure. A row must fit a slot: otherwise fails with kInvalidArgument.
ReduceNormConfig choose_reduce_norm(const ReduceNormDesc& desc);

// s = r + sum_p x_p, y = norm(s), both whole on every rank. `sums`: f32 [ceil(T / P), C] of
// scratch.
//
// Both: called by every thread of the rank's team with the same arguments, the input made and a
// team barrier since; the output is there after the next one. The bits are those of the collectives
// and add_rms_norm() one after the other, whatever the rounds and lanes. Throw kDeadline, kAborted.
void all_reduce_add_rms_norm(fabric::Comm& comm, const Team& team, const ReduceNormParams& p,
                             const ReduceNormConfig& config, float* sums, Isa isa = detected_isa());

// s_q = r_q + sum_p x_p[rows of q], y[rows of q] = norm(s_q): r and s are [S_q, C] on rank q.
void reduce_scatter_add_rms_norm_all_gather(fabric::Comm& comm, const Team& team,
                                            const ReduceNormParams& p,
                                            const ReduceNormConfig& config,
                                            Isa isa = detected_isa());

}  // namespace braid::cpu
