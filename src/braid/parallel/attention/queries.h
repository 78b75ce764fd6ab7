#pragma once

#include <span>
#include <string>

#include "braid/parallel/attention/lower_attention.h"
#include "braid/parallel/layout_plan.h"
#include "braid/program/program.h"

// Attention of few new tokens to keys on several ranks: queries go to the keys. In bytes of all
// ranks, for n tokens over P ranks:
//   queries  n (P - 1) Hq (D e + 4 (D + 2)): each rank sends its rows of q, e bytes an element, to
//            all others, which return a state in f32 (ops/attention_state.h)
//   keys     what the mesh's mode moves (attention_traffic)
namespace braid {

struct MovedBytes {
  int64_t queries = 0;
  int64_t keys = 0;
};
MovedBytes moved_bytes(const SequenceAttention& attention, const SequenceMesh& mesh);

// Whether queries go to the keys: a sequence's last tokens, all of them, over several ranks, if
// queries and states are fewer bytes than keys. Not with levels, dual chunks or a joint prefix.
bool queries_move(const SequenceAttention& attention, const SequenceMesh& mesh);

// Every rank gets all queries, attends to its own keys, and pushes each query's state to the
// query's rank, which merges the states in the order of the ranks. Keys are divided into parts that
// attend side by side, of at least division.least_rows rows, if queries alone keep no GPU busy.
AttentionOutputs lower_queries(std::span<Builder> builders, const SequenceAttention& attention,
                               const AttentionInputs& inputs, const AttentionDivision& division);

bool moves_queries(const Program& program);

// What moves in each attention of a rank's lowered Program: "queries move: 99.3 MB an attention as
// queries, 537.9 as keys", or "keys move: ...". Empty: no keys of earlier steps, or a single rank.
std::string explain_moves(const Program& lowered, const TokenSharding& tokens);

}  // namespace braid
