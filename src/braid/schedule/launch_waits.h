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
// A pull that brings inputs of a later phase is waited for in that phase, if all pulls of `needs`
// run one after the other on another stream in the order of the phases, each pull brings a single
// phase, no other launch waits for the pull inside, and this rank reads rows of every phase. The
// launch then also waits, before it begins, for everything that has to end before these pulls may
// run: a launch holds units of the device while it waits, and pulls need no units.
//
// A launch that takes only early results of another launch, and needs nothing that ends after the
// begin of that launch, waits for these results.
std::vector<Wait> waits_of(const Program& program, std::span<const Launch> launches,
                           const LaunchOrder& order, const Launch& launch, std::vector<int> needs);

// The last phase of an op on this rank; 0: a single phase.
int last_phase(const Op& op);

// The phase of an op's first access to its input at `index`; -1: this rank accesses none of it.
int first_phase(const Op& op, size_t index);

// Whether `launch`, with the same micro-batches as `other` and on another stream, takes only early
// results of `other`.
bool may_take_early(const Program& program, const Launch& launch, const Launch& other);

}  // namespace braid
