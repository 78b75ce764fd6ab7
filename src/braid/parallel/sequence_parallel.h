#pragma once

#include <string>
#include <vector>

#include "braid/parallel/lowering.h"

namespace braid {

// Divides a sequence's tokens over the ranks of a mesh, with whole weights on each rank. `q`: the
// positions that a step computes, with even_part(q.length(), P, r) rows on rank r. `kv`: the keys
// in each rank's cache by then. Rows with wanted logits come to all ranks, and each rank multiplies
// these rows by its part of the head's rows, since there may be fewer wanted rows than ranks.
//
// Fails with kInvalidArgument if the layouts do not fit the mesh.
LayoutPlan sequence_parallel(const Program& program, const SequenceMesh& mesh, SequenceLayout q,
                             SequenceLayout kv);

// Divides a sequence in a network without a KV cache over the ranks of a mesh, with whole weights
// on each. The sequence consists of `parts`, in attention order: each part names the inputs with
// its rows. The whole is cut into even contiguous shares: a share may lie in several parts, and a
// rank may have no row of a part. Fails with kInvalidArgument with fewer rows than ranks, or if
// inputs of a part differ in rows.
LayoutPlan row_parallel(const Program& program, const SequenceMesh& mesh,
                        const std::vector<std::vector<std::string>>& parts);

// Programs that bring a sequence's keys from all ranks' caches to rank 0's, layer by layer: `kv`
// lists each rank's keys that rank 0 lacks; rank 0 has none of these. Caches are those of
// `program`. Inputs on every rank:
//   kv_slots  i32 [most rows of kv]: this rank's slots, in layout order; -1 past the rows
//   to_slots  i32 [rows of kv in all]: rank 0's slots for rank 1's keys, then rank 2's, ...; -1
//             on other ranks
std::vector<RankProgram> gather_kv(const Program& program, const SequenceLayout& kv);

}  // namespace braid
