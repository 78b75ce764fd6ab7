#include "braid/schedule/schedule.h"

#include "braid/schedule/memory_plan.h"

namespace braid {

std::string_view to_string(Stream stream) {
  return stream == Stream::compute ? "compute" : "comm";
}

std::string to_string(const Schedule& schedule, const Program& program) {
  std::string out;
  for (size_t i = 0; i < schedule.launches.size(); ++i) {
    const Launch& launch = schedule.launches[i];
    const Op& op = program.ops[static_cast<size_t>(launch.op)];
    out += fmt::format("{:4} {:7} {:24} {}", i, to_string(launch.stream), launch.kernel.name,
                       op.scope);
    for (int wait : launch.waits) out += fmt::format(" after {}", wait);
    out += "\n";
  }
  return out + fmt::format("arena {} bytes, {} live at most\n", schedule.memory.arena_bytes,
                           schedule.memory.live_bytes);
}

Schedule sequential_schedule(const Program& program, const KernelCatalog& catalog) {
  Schedule schedule;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    schedule.launches.push_back(
        {static_cast<int>(i), Stream::compute, {}, catalog.find(program, program.ops[i])});
  }
  schedule.memory = plan_memory(program, schedule.launches);
  return schedule;
}

}  // namespace braid
