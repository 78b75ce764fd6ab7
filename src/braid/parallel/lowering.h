#pragma once

#include "braid/ops/kernel_catalog.h"
#include "braid/parallel/layout_plan.h"

namespace braid {

// A rank's Program: local shapes, and communication ops between differing placements.
struct RankProgram {
  Program program;
  int rank = 0;
  std::vector<Placement> placements;  // [values] along the plan's axis, of the logical value
};

// Walks the logical Program once and propagates the plan: each op's sharding rule says where its
// inputs must be and where its outputs are. A partial sum that is needed whole becomes an
// all_reduce, a shard an all_gather; what is wanted in other columns is made whole and cut by
// take_shard; where placements agree there is no communication. Program outputs are whole on every
// rank.
//
// With token_sharded_residual a partial sum of tokens becomes a reduce_scatter wherever its reader
// works on rows of tokens alone (add, rms_norm), and so do the readers behind it, until one needs
// the value whole (a linear with a divided weight, gather_rows), which is given it by an
// all_gather. What such a reader combines it with and every rank holds whole is cut by take_shard.
// A value so divided has the type [shard = ceil(T / P), C] on every rank, its Placement is
// shard(0) of ops::token_parts at capacity, and the ranks' Programs have capacity.shard.
//
// With plan.tokens each rank has its own rows of every input with the token axis, and computes them
// with whole weights; a value so divided is as above. kv_append keeps a rank's own keys, in a cache
// with room for all. An attention becomes the lowering that the mesh names (attention/), over keys
// that each rank reads from its cache. gather_rows becomes a sum of what each rank has of the rows
// (ops::kPickRows). What the host writes differs over ranks: token inputs as above, the rows to
// gather (of the rank's own tokens, -1 for those of others), and a new input
//   kv_slots  i32 [most rows of plan.tokens->kv]: of this rank, in the order of its layout; -1 past
//             them
// With plan.tokens->apart attention is lower_keys_apart, which takes the place of its cache's
// kv_append too; the new inputs are those of KeysApartInputs, in place of kv_slots.
//
// With plan.rows the rows of one sequence (B = 1) are divided as plan.pinned says of inputs,
// unevenly or so that some ranks have none, and outputs stay divided. A dense attention over such
// rows becomes the lowering that the mesh names: a rank's rows of all parts of the sequence are one
// value for it.
//
// A call of such an attention has as many stages as `kernels`, of each rank, wait for inside
// (AttentionStages).
//
// The same ops in the same order on all ranks. Fails with kUnsupported, naming the op, where the
// rule asks for what no conversion gives. Pure; the result for each rank 0..P-1.
std::vector<RankProgram> lower(const Program& program, const LayoutPlan& plan,
                               const std::vector<const KernelCatalog*>& kernels = {});

}  // namespace braid
