#pragma once

#include <span>
#include <vector>

#include "braid/program/program.h"
#include "braid/schedule/launch_order.h"
#include "braid/schedule/schedule.h"

namespace braid {

// The waits of a launch whose data come from the launches `needs`; `launches` are all before it, in
// `order`. A wait that other waits imply is left out.
//
// A pull that brings inputs of a later phase is waited for in that phase, if all pulls of `needs`
// run one after the other on one other stream in the order of the phases, each brings one phase, no
// other launch waits for it inside, and this rank reads rows of every phase. Then the launch also
// waits, before it begins, for all that has to end before these pulls may run: a launch holds units
// of the device while it waits, and pulls need none.
//
// A launch that takes only early results of another, and needs nothing else that ends after the
// other has begun, waits for these results.
std::vector<Wait> waits_of(const Program& program, std::span<const Launch> launches,
                           const LaunchOrder& order, const Launch& launch, std::vector<int> needs);

// The last phase of an op on this rank; 0: it has one.
int last_phase(const Op& op);

// The phase in which an op first accesses its input at `index`; -1: this rank accesses none of it.
int first_phase(const Op& op, size_t index);

// Whether `launch`, of the same micro-batches as `other` and on another stream, takes only early
// results of it.
bool may_take_early(const Program& program, const Launch& launch, const Launch& other);

}  // namespace braid
