#pragma once

#include <span>
#include <vector>

#include "braid/program/launch_time.h"
#include "braid/schedule/cost_model.h"
#include "braid/schedule/launch_price.h"
#include "braid/schedule/own_prices.h"
#include "braid/schedule/plan.h"

namespace braid {

// A step as the simulator sees it.
struct SimulatedStep {
  double seconds = 0;
  // [ranks][launches], from the step's begin. A group's first launch has the group's whole time;
  // each later member begins and ends at the group's end.
  std::vector<std::vector<LaunchTime>> times;
  std::vector<std::vector<LaunchCost>> costs;  // [ranks][launches], each alone
  PerLink<double> wire_bytes{};                // sent by all ranks
  double rack_bytes = 0;                       // of these, between racks
  int64_t arena_bytes = 0;                     // of a rank, the most
};

// Runs a plan's Schedules against the cost model: a discrete-event simulation. A launch begins
// after its predecessor on the stream, as soon as its waits allow, and works on each phase as soon
// as the phase's waits allow, an earlier part of its results first. A collective moves data after
// its last rank has come; ranks match by a launch's place among its stream's communication.
// Concurrent work shares fairly: the units and the memory of a device (of a machine if the profile
// says that ranks share both) and each rank's ports to its machine, to other machines and to other
// racks, out and in. A one-sided transfer takes the ports of both ends.
//
// A group is one launch: its members follow each other, and launch_seconds of the profile count
// once.
//
// `works`: [micro-batches] of the step. `own` comes before the cost model. Deterministic; about 0.3
// us per launch, up to 1 with partial waits. Fails with kInvalidArgument if the Schedules wait for
// each other for ever.
SimulatedStep simulate(const Plan& plan, std::span<const Work> works, const CostModel& model,
                       const OwnPrices& own = {});

// The same with communication that takes no time: communication ops cost nothing and wait for no
// rank, fused ops and attention that stores at peers cost their computation.
SimulatedStep simulate_without_communication(const Plan& plan, std::span<const Work> works,
                                             const CostModel& model, const OwnPrices& own = {});

}  // namespace braid
