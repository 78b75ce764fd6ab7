#include "braid/fabric/group.h"

#include "braid/base/error.h"

namespace braid::fabric {

Group Group::world(int size) {
  return strided(0, size, 1);
}

Group Group::strided(int base, int size, int stride) {
  Group group;
  for (int i = 0; i < size; ++i) group.ranks.push_back(base + i * stride);
  return group;
}

int Group::validate(int world, int rank) const {
  std::vector<bool> seen(world, false);
  int index = -1;
  for (int i = 0; i < size(); ++i) {
    const int r = ranks[i];
    if (r < 0 || r >= world) {
      fail(ErrorCode::kInvalidArgument, "group: rank {} is not one of 0..{}", r, world - 1);
    }
    if (seen[r]) fail(ErrorCode::kInvalidArgument, "group: rank {} appears twice", r);
    seen[r] = true;
    if (r == rank) index = i;
  }
  if (index < 0) fail(ErrorCode::kInvalidArgument, "group: rank {} is not a member", rank);
  return index;
}

}  // namespace braid::fabric
