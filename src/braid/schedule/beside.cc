#include "braid/schedule/beside.h"

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
  std::vector<Beside> beside(schedule.launches.size());
  for (int i = 0; i < order.size(); ++i) {
    for (size_t k = 0; k < kNumStreams; ++k) {
      if (static_cast<Stream>(k) == order.stream(i)) continue;
      for (auto at = static_cast<size_t>(order.clock(i)[k]); at < queue[k].size(); ++at) {
        const int j = queue[k][at];
        if (order.before(i, j)) break;  // it, and so all after it, follow
        const Op& op = schedule.op(program, schedule.launches[static_cast<size_t>(j)]);
        if (op.def == &ops::kBuffers) continue;  // nothing runs
        if (schedule.launches[static_cast<size_t>(j)].early == i) continue;
        Beside& its = beside[static_cast<size_t>(i)];
        const bool pulls = op.def == &ops::kPull;
        (pulls ? its.pulls : communicates(op) ? its.communicates : its.computes) = true;
      }
    }
  }
  return beside;
}

}  // namespace braid
