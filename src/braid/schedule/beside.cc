#include "braid/schedule/beside.h"

#include "braid/schedule/launch_order.h"
#include "braid/schedule/partition.h"

namespace braid {

void find_beside(const Program& program, Schedule& schedule) {
  const LaunchOrder order(schedule.launches);
  PerStream<std::vector<int>> queue;  // launches
  for (int i = 0; i < order.size(); ++i) queue[order.stream(i)].push_back(i);
  for (int i = 0; i < order.size(); ++i) {
    Beside& its = schedule.launches[i].beside;
    its = {};
    for (size_t k = 0; k < kNumStreams; ++k) {
      if (static_cast<Stream>(k) == order.stream(i)) continue;
      for (size_t at = order.clock(i)[k]; at < queue[k].size(); ++at) {
        const int j = queue[k][at];
        if (order.before(i, j)) break;  // launch j and all later launches follow
        const Op& op = schedule.op(program, schedule.launches[j]);
        if (!op.def->runs) continue;
        if (schedule.launches[j].takes_part_of(i)) continue;
        const bool pulls = op.def->remote == RemoteUse::pulls;
        (pulls ? its.pulls : communicates(op) ? its.communicates : its.computes) = true;
      }
    }
  }
}

}  // namespace braid
