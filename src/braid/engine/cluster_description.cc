#include "braid/engine/cluster_description.h"

#include "braid/base/error.h"

namespace braid {
namespace {

template <class T>
void require_same(const ClusterDescription& cluster, std::string_view what,
                  T RankDescription::*field) {
  const RankDescription& first = cluster.ranks.front();
  for (size_t r = 1; r < cluster.ranks.size(); ++r) {
    const RankDescription& other = cluster.ranks[r];
    if (other.*field == first.*field) continue;
    fail(ErrorCode::kInvalidArgument, "{} differ: rank 0 on {} has '{}', rank {} on {} has '{}'",
         what, first.host, first.*field, r, other.host, other.*field);
  }
}

}  // namespace

Topology ClusterDescription::topology() const {
  return {
      .machines = machines, .devices = ranks_count() / machines, .racks = racks, .mapped = mapped};
}

void require_alike(const ClusterDescription& cluster) {
  require_same(cluster, "builds", &RankDescription::build);
  require_same(cluster, "devices", &RankDescription::device);
  require_same(cluster, "units of the devices", &RankDescription::units);
  require_same(cluster, "kernels", &RankDescription::kernels);
  require_same(cluster, "strategy libraries", &RankDescription::strategy_library);
  if (cluster.ranks.front().device != "cpu") {
    require_same(cluster, "bytes of the devices", &RankDescription::memory_bytes);
  }
}

}  // namespace braid
