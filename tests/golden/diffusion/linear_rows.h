#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "braid/ops/linear.h"
#include "braid/parallel/lowering.h"

namespace braid::golden {

// Rows that pass each weight's linears in the Programs of all ranks.
struct LinearRows {
  std::map<std::string, int64_t> all;   // of all ranks
  std::map<std::string, int64_t> most;  // of the rank with the most
};

inline LinearRows linear_rows(const std::vector<RankProgram>& ranks) {
  LinearRows rows;
  for (const RankProgram& rank : ranks) {
    std::map<std::string, int64_t> own;
    for (const Op& op : rank.program.ops) {
      if (op.def != &ops::kLinear) continue;
      own[rank.program.value(op.inputs[1]).name] += rank.program.value(op.inputs[0]).type.shape[0];
    }
    for (const auto& [weight, n] : own) {
      rows.all[weight] += n;
      rows.most[weight] = std::max(rows.most[weight], n);
    }
  }
  return rows;
}

// A mesh of every mode on 2 to 8 ranks, of one machine and of two.
inline std::vector<SequenceMesh> meshes_of_every_mode(int64_t heads) {
  std::vector<SequenceMesh> meshes;
  for (const Topology& topology :
       {Topology{1, 2}, {2, 1}, {1, 3}, {2, 2}, {1, 4}, {1, 5}, {2, 3}, {1, 7}, {1, 8}, {2, 4}}) {
    for (SpMode mode : kSpModes) meshes.push_back(sequence_mesh(mode, topology, heads));
  }
  return meshes;
}

}  // namespace braid::golden
