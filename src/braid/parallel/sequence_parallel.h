#pragma once

#include <string>
#include <vector>

#include "braid/parallel/lowering.h"

namespace braid {

// One sequence's tokens divided over the ranks of a mesh, with whole weights on each: `q` are the
// positions that a step computes, with as many rows on rank r as even_part(q.length(), P, r) has;
// `kv` the keys that each rank has in its cache by then. Rows whose logits are wanted come to all
// ranks, and each multiplies them by its part of the head's rows, since there may be fewer of them
// than ranks.
// Fails with kInvalidArgument where the layouts do not fit the mesh.
LayoutPlan sequence_parallel(const Program& program, const SequenceMesh& mesh, SequenceLayout q,
                             SequenceLayout kv);

// One sequence of a network without a KV cache over the ranks of a mesh, with whole weights on
// each. The sequence consists of `parts`, in the order of its attention: each names the inputs
// whose rows are that part's. It is cut into even contiguous shares as one, so that a share may lie
// in several parts, and a rank may have no row of one. Fails with kInvalidArgument where there are
// fewer rows than ranks, or inputs of a part have different numbers of rows.
LayoutPlan row_parallel(const Program& program, const SequenceMesh& mesh,
                        const std::vector<std::vector<std::string>>& parts);

// Programs that bring keys of a sequence from the caches of all ranks to rank 0's, layer by layer:
// `kv` says which each rank has that rank 0 wants; it has none of them itself. Caches are those of
// `program`. Inputs on every rank:
//   kv_slots  i32 [most rows of kv]: this rank's, in the order of its layout; -1 past them
//   to_slots  i32 [rows of kv in all]: where rank 0 puts those of rank 1, then of rank 2, ...; -1
//             on other ranks
std::vector<RankProgram> gather_kv(const Program& program, const SequenceLayout& kv);

}  // namespace braid
