#pragma once

#include "braid/ops/kernel_catalog.h"
#include "braid/parallel/layout_plan.h"

namespace braid {

// A rank's Program: local shapes, and communication ops between differing placements.
struct RankProgram {
  Program program;
  int rank = 0;
  // [values] along the plan's axis, for the logical value. Parts are a group's ranks or all ranks
  // (part_of).
  std::vector<Placement> placements;
  std::map<ValueId, Placement> widths;  // the second cut of doubly cut weights
};

// A rank's part in a shard.
inline const Range& part_of(const Placement& placement, int rank) {
  return placement.parts[static_cast<size_t>(rank) % placement.parts.size()];
}

// Walks the logical Program once and propagates the plan: each op's sharding rule gives the needed
// placement of inputs and the placement of outputs. A partial sum that is needed whole becomes an
// all_reduce, a shard an all_gather; a value wanted in other columns is made whole and cut by
// take_shard; equal placements need no communication.
// Program outputs are whole on every rank.
//
// With token_sharded_residual a partial sum of tokens becomes a reduce_scatter if its reader works
// on single rows of tokens (add, rms_norm). Later readers stay so, until a reader needs the value
// whole (a linear with a divided weight, gather_rows) and gets it by an all_gather. Other operands
// of such a reader that every rank holds whole are cut by take_shard. A value divided in this way
// has the type [shard = ceil(T / P), C] on every rank, its Placement is shard(0) of
// ops::token_parts at capacity, and the ranks' Programs have capacity.shard.
//
// With plan.experts each rank makes the expert rows of its own experts from all tokens, and their
// sums are partial; with token_sharded_residual, too, the rows of tokens go to the ranks of their
// experts and the sums come back (experts/exchange.h).
//
// With plan.groups the ranks of each group compute the rows of their own sequences, under the same
// capacities; every input differs over groups but the rows to gather, which are those of all groups
// (-1 where another group has the row). gather_rows becomes a sum over groups of ops::kPickRows.
// With plan.experts, too, rows go to the ranks of their experts in all groups.
//
// With plan.tokens each rank has its own rows of every input with the token axis, and computes them
// with whole weights; a divided value is as above. kv_append keeps a rank's own keys, in a cache
// with room for all. An attention becomes the mesh's mode (attention/), over keys that each rank
// reads from its cache. gather_rows becomes a sum of each rank's rows (ops::kPickRows). Inputs from
// the host differ over ranks: token inputs as above, the rows to gather (of the rank's own tokens,
// -1 for other ranks' tokens), and a new input
//   kv_slots  i32 [most rows of plan.tokens->kv]: this rank's slots, in layout order; -1 past the
//             rows
// With plan.tokens->apart attention becomes lower_keys_apart, which also replaces its cache's
// kv_append; the new inputs are those of KeysApartInputs, in place of kv_slots.
//
// With plan.rows the rows of a sequence (B = 1) are divided as plan.pinned says for inputs,
// unevenly or with empty ranks, and outputs stay divided.
// A dense attention over such rows becomes the mesh's mode: a rank's rows of all parts of the
// sequence are a single value there.
//
// Calls of such an attention are cut for `kernels`, of each rank (cut_phases).
//
// The same ops in the same order on all ranks. Fails with kUnsupported, naming the op, if a rule
// asks for a placement without a conversion. Pure; the result for each rank 0..P-1.
std::vector<RankProgram> lower(const Program& program, const LayoutPlan& plan,
                               const std::vector<const KernelCatalog*>& kernels = {});

}  // namespace braid
