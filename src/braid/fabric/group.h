#pragma once

#include <vector>

namespace braid::fabric {

// Ranks that do a collective together, for instance a line of a mesh axis. A rank's index in the
// group is its place in `ranks`; sums run in index order.
struct Group {
  std::vector<int> ranks;  // of the world, each once

  static Group world(int size);
  // base, base + stride, ...: size ranks.
  static Group strided(int base, int size, int stride);

  int size() const { return static_cast<int>(ranks.size()); }
  int operator[](int index) const { return ranks[index]; }
  // Throws kInvalidArgument unless `ranks` are distinct ranks in 0..world-1 and hold `rank`;
  // returns `rank`'s index.
  int validate(int world, int rank) const;
};

}  // namespace braid::fabric
