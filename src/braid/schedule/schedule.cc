#include "braid/schedule/schedule.h"

#include <algorithm>
#include <limits>

#include "braid/base/fnv.h"

namespace braid {
namespace {

std::string to_string(const Wait& wait) {
  const std::string_view how = wait.partial() ? "early of" : wait.inside() ? "beside" : "after";
  return fmt::format(" {} {}", how, wait.launch);
}

}  // namespace

int Launch::last_phase() const {
  int last = 0;
  for (const Wait& wait : waits) last = std::max(last, wait.phase);
  return last;
}

bool Launch::takes_part_of(int launch) const {
  return std::ranges::any_of(
      waits, [&](const Wait& wait) { return wait.launch == launch && wait.partial(); });
}

std::string micro_batches_of(const Launch& launch) {
  std::string text = fmt::format("{}", launch.micro_batch);
  if (launch.num_micro_batches > 1) text += fmt::format("-{}", launch.micro_batch_end() - 1);
  for (const BatchOp& other : launch.joined) text += fmt::format("+{}", other.micro_batch);
  return text;
}

int Schedule::num_launches() const {
  auto n = static_cast<int>(launches.size());
  for (const LaunchGroup& group : groups) n -= group.count - 1;
  return n;
}

const LaunchGroup* Schedule::group_of(int launch) const {
  const auto after = std::ranges::upper_bound(groups, launch, {}, &LaunchGroup::first);
  if (after == groups.begin()) return nullptr;
  const LaunchGroup& group = *std::prev(after);
  return launch < group.end() ? &group : nullptr;
}

Extents Schedule::capacity(const Program& program, int first, int count) const {
  if (count == std::ssize(micro_batches)) return program.capacity;
  Extents sum;
  for (int mb = first; mb < first + count; ++mb) sum += micro_batches[mb].capacity;
  return sum;
}

Extents Schedule::capacity(const Program& program, const Launch& launch) const {
  Extents most = capacity(program, launch.micro_batch, launch.num_micro_batches);
  for (const BatchOp& other : launch.joined) {
    const Extents one = capacity(program, other.micro_batch, 1);
    for (const BatchAxis axis : kBatchAxes) most[axis] = std::max(most[axis], one[axis]);
  }
  return most;
}

std::string to_string(const Schedule& schedule, const Program& program) {
  std::string out =
      fmt::format("schedule {}: {} launches, {} micro-batches (tokens", schedule.strategy,
                  schedule.num_launches(), schedule.micro_batches.size());
  for (const MicroBatch& mb : schedule.micro_batches) {
    out += fmt::format(" {}{}", mb.capacity.token, mb.continues ? " continuing" : "");
  }
  out += ")\n";
  for (size_t i = 0; i < schedule.launches.size(); ++i) {
    const Launch& launch = schedule.launches[i];
    const Op& op = schedule.op(program, launch);
    const LaunchGroup* group = schedule.group_of(static_cast<int>(i));
    if (group != nullptr && group->first == static_cast<int>(i)) {
      out +=
          fmt::format("{:4} {:7} mb {:3} {}, of {} launches as one\n", i, to_string(launch.stream),
                      micro_batches_of(launch), group->kernel, group->count);
    }
    out += fmt::format("{:4} {:7} mb {:3} {:36} {}", i, to_string(launch.stream),
                       micro_batches_of(launch),
                       (group != nullptr ? "  " : "") + launch.kernel.name, op.scope);
    for (const Wait& wait : launch.waits) out += to_string(wait);
    out += "\n";
  }
  return out + fmt::format("arena {} bytes, {} live at most\n", schedule.memory.arena_bytes,
                           schedule.memory.live_bytes);
}

uint64_t hash_of(const Schedule& schedule) {
  Fnv hash;
  hash.add(schedule.strategy);
  for (const MicroBatch& mb : schedule.micro_batches) {
    for (const BatchAxis axis : kBatchAxes) {
      // A model without experts has none of their rows.
      if (axis != BatchAxis::expert_row || mb.capacity[axis] > 0) hash.add(mb.capacity[axis]);
    }
    hash.add(static_cast<int64_t>(mb.continues));
  }
  for (const Op& op : schedule.replacements) hash.add(op.def->kind);
  for (const Launch& launch : schedule.launches) {
    for (int n : {launch.op, launch.num_ops, launch.replacement, launch.micro_batch,
                  launch.num_micro_batches, static_cast<int>(launch.stream)}) {
      hash.add(n);
    }
    for (const BatchOp& other : launch.joined) {
      hash.add(other.op);
      hash.add(other.micro_batch);
    }
    // Waits of phase 0 for all results, waits inside, partial waits: separate ranges.
    for (const Wait& wait : launch.waits) {
      if (!wait.inside() && !wait.partial()) hash.add(wait.launch);
    }
    hash.add(-1);
    for (const Wait& wait : launch.waits) {
      if (wait.inside()) hash.add(-2 - wait.launch);
    }
    for (const Wait& wait : launch.waits) {
      if (!wait.partial()) continue;
      hash.add(std::numeric_limits<int>::min() + wait.launch);
      if (wait.part > 0) hash.add(wait.part);
    }
  }
  for (const LaunchGroup& group : schedule.groups) {
    hash.add(group.form->name);
    hash.add(group.kernel);
    hash.add(group.first);
    hash.add(group.count);
  }
  for (int64_t offset : schedule.memory.value_offset) hash.add(offset);
  for (bool merged : schedule.memory.merged) hash.add(static_cast<int64_t>(merged));
  for (int64_t offset : schedule.memory.workspace_offset) hash.add(offset);
  return hash.value();
}

}  // namespace braid
