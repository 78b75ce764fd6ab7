#pragma once

#include <string>
#include <vector>

#include "braid/ops/kernel_catalog.h"
#include "braid/program/program.h"

namespace braid {

enum class Stream : uint8_t { compute, comm };
std::string_view to_string(Stream stream);

// One op of the Program, on a stream. Launches of a stream run in recorded order; `waits` names
// launches of other streams that must have finished first.
struct Launch {
  int op = 0;  // index into Program::ops
  Stream stream = Stream::compute;
  std::vector<int> waits;  // indexes into Schedule::launches, each smaller than this launch's own
  KernelInfo kernel;
};

// Where the values of a Program lie in one arena, at capacity.
struct MemoryPlan {
  static constexpr int64_t kAlignment = 64;
  std::vector<int64_t> value_offset;  // [values]; -1: not in the arena (weights, states, unused)
  std::vector<int64_t> workspace_offset;  // [launches]; -1: none
  int64_t arena_bytes = 0;
  int64_t live_bytes = 0;  // the most that is live at once: no plan is smaller
};

// When each op of a Program runs: data made once per context key, then replayed.
struct Schedule {
  std::vector<Launch> launches;
  MemoryPlan memory;
};

// One line per launch, then the arena.
std::string to_string(const Schedule& schedule, const Program& program);

// Every op in program order on the compute stream, with its memory planned.
Schedule sequential_schedule(const Program& program, const KernelCatalog& catalog);

}  // namespace braid
