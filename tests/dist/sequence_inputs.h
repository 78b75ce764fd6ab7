#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "braid/parallel/attention/sequence_layout.h"

// What tests of sequence-parallel attention on CPU ranks and on GPUs name alike.
namespace braid::testing_sp {

// The whole q, k or v; the joint prefix is another tensor.
enum Tensor : uint64_t { kQ, kK, kV, kJointQ, kJointK, kJointV };

// The rows of `layout` that `rank` holds: position of each.
inline std::vector<int64_t> positions_of(const SequenceLayout& layout, int rank) {
  std::vector<int64_t> positions;
  for (const SequenceRun& run : layout.ranks[static_cast<size_t>(rank)]) {
    for (int64_t i = 0; i < run.rows; ++i) positions.push_back(run.position + i);
  }
  return positions;
}

// The positions of a joint prefix.
inline std::vector<int64_t> prefix(int64_t n) {
  std::vector<int64_t> positions(static_cast<size_t>(n));
  std::iota(positions.begin(), positions.end(), int64_t{0});
  return positions;
}

}  // namespace braid::testing_sp
