#pragma once

#include <memory>
#include <string>
#include <vector>

#include "braid/schedule/op_scheduler.h"

namespace braid {

// The strategies that come with Braid, a file each.
std::unique_ptr<OpScheduler> sequential_strategy();
std::unique_ptr<OpScheduler> overlap_strategy();
std::unique_ptr<OpScheduler> nanoflow_strategy();
std::unique_ptr<OpScheduler> gemm_collective_strategy();
std::unique_ptr<OpScheduler> tokenweave_strategy();
std::unique_ptr<OpScheduler> sequence_parallel_strategy();
std::unique_ptr<OpScheduler> cfg_passes_strategy();
std::unique_ptr<OpScheduler> sbo_strategy();
std::unique_ptr<OpScheduler> dbo_strategy();
std::unique_ptr<OpScheduler> comet_strategy();

// Programs that a strategy fits: any, Programs with sequence-parallel attention, Programs for ranks
// that divide experts, or denoising steps with a pass for each text.
enum class ProgramKind : uint8_t { any, sequence, experts, passes };

// Names of strategies for any Program, "sequential" first, then strategies for this kind alone.
std::vector<std::string> strategy_names(ProgramKind kind = ProgramKind::any);
std::vector<std::string> all_strategy_names();

// Whether `name` is a shared library: contains a slash or ends in ".so".
bool is_strategy_file(std::string_view name);

// A strategy by name, or from a shared library
// (BRAID_STRATEGY in op_scheduler.h); the library stays loaded as long as the strategy. Fails with
// kInvalidArgument, listing the names that are known, and with kUnsupported on a library that was
// built for another version.
std::shared_ptr<const OpScheduler> find_strategy(const std::string& name);

}  // namespace braid
