#pragma once

#include <span>

#include "braid/kernels/cuda/relay/relay_config.h"
#include "braid/ops/launch_group.h"
#include "braid/program/program.h"

namespace braid::cuda {

// A run's first launches that a relay takes: each op takes what the op before makes. Pure data.
struct RelayRun {
  int launches = 0;  // 0: none
  RelayConfig config;
};

// `summed`: the relay may go on over ranks, all of which do the same. Left outside: a rope without
// its attention, a sum without its linear, and steps for which a launch has no room.
RelayRun relay_run(const Program& program, std::span<const Op* const> ops,
                   const RelayDevice& device, bool summed);

// The run as a group of launches; a single launch is none.
LaunchGroup relay_group(const RelayRun& run);

}  // namespace braid::cuda
