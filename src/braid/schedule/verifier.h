#pragma once

#include "braid/schedule/plan.h"

namespace braid {

// Proves, over all ranks together, that a plan's Schedules compute what its Programs say whatever
// the timing. The proof reads launches, waits and offsets, not how they were made. An error names
// the op, the micro-batch, the launches, the value and the rule that is broken:
//   every op once     each (op, micro-batch) is in exactly one launch
//   merged batches    what divides tokens over ranks works on one micro-batch
//   waits             are for earlier launches, in the order of phases
//   waits inside      the launches that a launch waits for while it runs follow each other on one
//                     stream and bring all its phases; neither they nor what has to end before
//                     they end, and has not before the launch begins, needs units of the device,
//                     which the launch holds
//   early results     a launch that begins beside another takes only what the other makes early
//   inputs are made   the launch that makes a value ends before one that reads it begins (RAW)
//   accesses in order accesses of a value that ops write after it was made (send buffers,
//                     destinations of pulls, running states) happen in program order (RAW, WAR,
//                     WAW). Each begins with its launch, or with the phase in which the launch
//                     first accesses the value
//   states in order   the same of states, also from a micro-batch to one that continues it
//   memory            two values, or a value and scratch, that share bytes of the arena are ordered
//                     (WAR, WAW), each place lies inside it, aligned, and what a merged launch
//                     touches is merged and has rows for all micro-batches
//   channels          what communicates on one stream is ordered on every rank, and every rank's
//                     n-th communication of a stream is the same op of the same micro-batches
//   no deadlock       ranks that run their launches one at a time in recorded order all end, and so
//                     do ranks whose streams run beside each other
//   same offsets      values of equal index lie at equal offsets on all ranks
// and of accesses of other ranks' copies (ops/one_sided.h), whose syncs name the same values and
// ranks on all ranks:
//   R1                a rank reads another's copy between two meetings of both that have the value
//                     as an input, and nobody writes the rows in between
//   R2                a rank writes to another's copy, or a pull fills a buffer, after a meeting
//                     that opened it
//   R3                the owner closes what others write with a sync that counts their pushes, all
//                     of them, and reads it after that; rows of a copy have one writer
//   no deadlock       no sync counts more pushes than come, or one that is launched after it
// A step ends with all streams joined, so a Schedule may follow itself or any other that shares its
// arena and states. A wait that others imply may be missing. Fails with kInvalidArgument. Cost:
// about linear in launches and moves.
void verify(const Plan& plan);

}  // namespace braid
