#include "braid/schedule/beside.h"

#include <algorithm>
#include <array>

#include "braid/ops/one_sided.h"
#include "braid/ops/segment_attention.h"
#include "braid/schedule/launch_order.h"
#include "braid/schedule/partition.h"

namespace braid {

std::vector<Beside> launches_beside(const Program& program, const Schedule& schedule) {
  const LaunchOrder order(schedule.launches);
  std::array<std::vector<int>, kNumStreams> queue;  // launches
  for (int i = 0; i < order.size(); ++i) queue[static_cast<size_t>(order.stream(i))].push_back(i);
  // Early results come of a launch that has begun.
  const auto early = [&](int i) { return schedule.launches[static_cast<size_t>(i)].early; };
  const auto follows = [&](int j, int i) {
    return order.before(i, j) || (early(j) >= 0 && order.before(i, early(j)));
  };
  std::vector<Beside> beside(schedule.launches.size());
  for (int i = 0; i < order.size(); ++i) {
    for (size_t k = 0; k < kNumStreams; ++k) {
      if (static_cast<Stream>(k) == order.stream(i)) continue;
      int ended = order.clock(i)[k];
      if (early(i) >= 0) ended = std::max(ended, order.clock(early(i))[k]);
      for (auto at = static_cast<size_t>(ended); at < queue[k].size(); ++at) {
        const int j = queue[k][at];
        if (follows(j, i)) break;  // and so do all after it
        const Op& op = schedule.op(program, schedule.launches[static_cast<size_t>(j)]);
        if (op.def == &ops::kBuffers) continue;  // nothing runs
        if (early(j) == i) continue;
        Beside& its = beside[static_cast<size_t>(i)];
        const bool pulls = op.def == &ops::kPull;
        (pulls ? its.pulls : communicates(op) ? its.communicates : its.computes) = true;
      }
    }
  }
  return beside;
}

}  // namespace braid
