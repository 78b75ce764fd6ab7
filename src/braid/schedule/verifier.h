#pragma once

#include <span>

#include "braid/schedule/schedule.h"

namespace braid {

// Proves, over all ranks together, that the Schedules compute what the Programs say whatever the
// timing. Independent of how they were made: it reads launches, waits and offsets only. Rules, each
// named by the error where it is broken:
//   every op once     each (op, micro-batch) is in exactly one launch
//   merged batches    what divides tokens over ranks works on one micro-batch
//   waits             are for earlier launches
//   inputs are made   the launch that makes a value ends before one that reads it begins (RAW)
//   states in order   conflicting accesses of a state by one micro-batch, or by one that continues
//                     another, happen in program order
//   memory            two values, or a value and scratch, that share bytes of the arena are ordered
//                     (WAR, WAW), each place lies inside it, aligned, and what a merged launch
//                     touches is merged and has rows for all micro-batches
//   channels          what communicates on one stream is ordered on every rank, and every rank's
//                     n-th communication of a stream is the same op of the same micro-batches
//   no deadlock       ranks that run their launches one at a time in recorded order all end, and so
//                     do ranks whose streams run beside each other
//   same offsets      values of equal index lie at equal offsets on all ranks
// A step ends with all streams joined, so a Schedule may follow itself or any other that shares its
// arena and states. Fails with kInvalidArgument, naming the op, the micro-batch and the rule.
void verify(std::span<const Program* const> programs, std::span<const Schedule> schedules);

}  // namespace braid
