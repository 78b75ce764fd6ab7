#include "braid/engine/thinning.h"

namespace braid {

KeyLevels levels_of(const Thinning& thinning, const std::optional<Topology>& ranks) {
  const int parts = thinning.groups.empty() ? kThinnedRanks : thinning.groups.back();
  KeyLevels levels = ranks ? key_levels(thinning.keep, thinning.groups, *ranks)
                           : key_levels(thinning.keep, thinning.groups, parts);
  levels.importance = thinning.importance;
  if (levels.importance == Importance::probe) levels.scoring = 64;
  levels.drop_queries = thinning.drop_queries;
  // A scoring query is never dropped.
  if (levels.importance == Importance::previous && levels.drop_queries) {
    levels.scoring = levels.recent;
  }
  return levels;
}

}  // namespace braid
