#include "braid/schedule/beside.h"

#include <algorithm>
#include <array>

#include "braid/ops/segment_attention.h"
#include "braid/schedule/partition.h"

namespace braid {

std::vector<Beside> launches_beside(const Program& program, const Schedule& schedule) {
  const size_t n = schedule.launches.size();
  std::array<std::vector<size_t>, kNumStreams> queue;  // launches
  std::vector<size_t> place(n);                        // in its queue
  // Of each stream, how many of its launches have ended before this one begins.
  std::vector<std::array<size_t, kNumStreams>> before(n);
  for (size_t i = 0; i < n; ++i) {
    const Launch& launch = schedule.launches[i];
    auto& mine = queue[static_cast<size_t>(launch.stream)];
    const auto follow = [&](size_t j) {
      const auto s = static_cast<size_t>(schedule.launches[j].stream);
      for (size_t k = 0; k < kNumStreams; ++k) before[i][k] = std::max(before[i][k], before[j][k]);
      before[i][s] = std::max(before[i][s], place[j] + 1);
    };
    if (!mine.empty()) follow(mine.back());
    for (int awaited : launch.waits) follow(static_cast<size_t>(awaited));
    place[i] = mine.size();
    mine.push_back(i);
  }
  std::vector<Beside> beside(n);
  for (size_t i = 0; i < n; ++i) {
    const auto s = static_cast<size_t>(schedule.launches[i].stream);
    for (size_t k = 0; k < kNumStreams; ++k) {
      if (k == s) continue;
      for (size_t at = before[i][k]; at < queue[k].size(); ++at) {
        const size_t j = queue[k][at];
        if (before[j][s] > place[i]) break;  // it, and so all after it, follow
        const Op& op = schedule.op(program, schedule.launches[j]);
        if (op.def == &ops::kBuffers) continue;  // nothing runs
        (communicates(op) ? beside[i].communicates : beside[i].computes) = true;
      }
    }
  }
  return beside;
}

}  // namespace braid
