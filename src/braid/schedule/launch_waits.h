#pragma once

#include <span>
#include <vector>

#include "braid/program/program.h"
#include "braid/schedule/launch_order.h"
#include "braid/schedule/schedule.h"

namespace braid {

// The waits of a launch with data from the launches `needs`; `launches` are all earlier launches,
// in `order`. A wait implied by other waits is left out.
//
// A launch waits in a later phase for a pull that brings the phase's inputs, if all pulls in
// `needs` run in phase order on another stream, each pull brings a single phase, no other launch
// waits for the pull inside, and this rank reads rows in every phase. Before it begins, the launch
// then also waits for everything that must end before these pulls may run: a launch holds units of
// the device while it waits, and pulls need no units.
//
// A launch that takes only earlier parts of another launch's results, and needs nothing that ends
// after the begin of that launch, waits for these parts.
std::vector<Wait> waits_of(const Program& program, std::span<const Launch> launches,
                           const LaunchOrder& order, const Launch& launch, std::vector<int> needs);

// The last phase of an op on this rank; 0: a single phase.
int last_phase(const Op& op);

// The phase of an op's first access to the input at `index`; -1: no access on this rank.
int first_phase(const Op& op, size_t index);

// The latest part of the results of `other` that `launch` takes, if both have the same
// micro-batches and different streams; else the last.
int part_taken(const Program& program, const Launch& launch, const Launch& other);

}  // namespace braid
