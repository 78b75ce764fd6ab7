#pragma once

#include <memory>
#include <string>
#include <vector>

#include "braid/schedule/op_scheduler.h"

namespace braid {

// The strategies that come with Braid, one file each.
std::unique_ptr<OpScheduler> sequential_strategy();
std::unique_ptr<OpScheduler> overlap_strategy();
std::unique_ptr<OpScheduler> nanoflow_strategy();
std::unique_ptr<OpScheduler> gemm_collective_strategy();
std::unique_ptr<OpScheduler> tokenweave_strategy();
std::unique_ptr<OpScheduler> sequence_parallel_strategy();

// The names of those for any Program, "sequential" first; without `general` of all, among them
// sequence_parallel, which is for Programs with sequence-parallel attention.
std::vector<std::string> strategy_names(bool general = true);

// Whether it names a shared library: it holds a slash or ends in ".so".
bool is_strategy_file(std::string_view name);

// A strategy by name, or from a shared library
// (BRAID_STRATEGY in op_scheduler.h); the library stays loaded as long as the strategy. Fails with
// kInvalidArgument, listing the names that are known, and with kUnsupported on a library that was
// built for another version.
std::shared_ptr<const OpScheduler> find_strategy(const std::string& name);

}  // namespace braid
