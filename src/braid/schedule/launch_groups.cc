#include "braid/schedule/launch_groups.h"

#include <algorithm>

namespace braid {

void find_groups(const Program& program, const KernelCatalog& catalog, bool ranks_alike,
                 Schedule& schedule) {
  schedule.groups.clear();
  if (schedule.micro_batches.size() != 1) return;
  const std::vector<Launch>& launches = schedule.launches;
  std::vector<bool> awaited(launches.size()), in_parts(launches.size());
  std::vector<const Op*> ops;
  for (const Launch& launch : launches) {
    for (const Wait& wait : launch.waits) {
      awaited[wait.launch] = true;
      if (wait.partial()) in_parts[wait.launch] = true;
    }
    ops.push_back(&schedule.op(program, launch));
  }
  const auto alone = [&](size_t i) {
    const Beside& beside = launches[i].beside;
    return !beside.computes && !beside.pulls && !beside.communicates &&
           launches[i].joined.empty() && !in_parts[i];
  };
  const auto follows = [&](size_t i) {
    return launches[i].stream == launches[i - 1].stream && launches[i].waits.empty() &&
           !awaited[i - 1];
  };
  size_t end = 0;
  for (size_t i = 0; i < launches.size();) {
    if (!alone(i)) {
      ++i;
      continue;
    }
    for (end = std::max(end, i + 1); end < launches.size() && alone(end) && follows(end);) ++end;
    LaunchGroup group;
    if (end > i + 1) {
      const std::span<const Op* const> run = std::span(ops).subspan(i, end - i);
      group = catalog.join(program,
                           {.ops = run, .stream = launches[i].stream, .ranks_alike = ranks_alike});
    }
    BRAID_CHECK(group.count != 1 && i + static_cast<size_t>(group.count) <= end,
                "a group of {} of {} launches", group.count, end - i);
    group.first = static_cast<int>(i);
    i += static_cast<size_t>(std::max(1, group.count));
    if (group.count > 0) schedule.groups.push_back(std::move(group));
  }
}

}  // namespace braid
