#pragma once

#include "braid/schedule/plan.h"

namespace braid {

// Proves, over all ranks together, that a plan's Schedules compute their Programs for any timing.
// The proof reads launches, waits and offsets, and nothing about their making. An error names the
// op, the micro-batch, the launches, the value and the broken rule:
//   every op once     each (op, micro-batch) is in exactly one launch
//   merged batches    an op that divides tokens over ranks works on a single micro-batch
//   waits             are for earlier launches, in the order of phases
//   waits inside      the launches that a launch waits for inside follow each other on a stream
//                     and bring all its phases. No unit of the device may be needed by these
//                     launches, or by launches that must end first and may still run when the
//                     waiting launch begins: the waiting launch holds the units
//   result parts      a launch that begins beside another takes only parts of the other's results
//                     that it waits for
//   inputs are made   a value's maker ends before a reader begins (RAW)
//   accesses in order accesses of a value that ops write after its making (send buffers,
//                     destinations of pulls, running states) happen in program order (RAW, WAR,
//                     WAW). Each access begins with its launch, or with the phase of the
//                     launch's first access to the value
//   states in order   the same for states, also from a micro-batch to its continuation
//   launches as one   members of a group follow each other on one stream, in a step of one
//                     micro-batch; each member's op fits the group's form and takes a result of
//                     the member before. Only the first may wait, only the last may be awaited,
//                     and no launch of another stream runs meanwhile. All ranks join the same
//                     launches around a collective
//   memory            two values, or a value and scratch, with common bytes in the arena are
//                     ordered (WAR, WAW); each place lies inside the arena, aligned; values of a
//                     merged launch are merged and have rows for all micro-batches
//   channels          communication on a stream is ordered on every rank, and every rank's n-th
//                     communication on a stream is the same op of the same micro-batches
//   no deadlock       ranks that run launches one at a time in recorded order all end, and so do
//                     ranks with concurrent streams
//   same offsets      values of equal index lie at equal offsets on all ranks
// and for accesses of other ranks' copies (ops/one_sided.h), with syncs that name the same values
// and ranks on all ranks:
//   R1                a rank reads another's copy between two meetings of both ranks that have the
//                     value as an input, and nobody writes the rows in between
//   R2                a rank writes to another's copy, or a pull fills a buffer, after a meeting
//                     that opened the copy or buffer
//   R3                the owner closes its copy with a sync that counts all pushes to the copy, and
//                     reads the copy afterwards; each row of a copy has a single writer
//   no deadlock       no sync counts more pushes than come, or a push launched after the sync
// A step ends with all streams joined, so a Schedule may follow itself or any other Schedule with
// the same arena and states. A wait implied by other waits may be missing. Fails with
// kInvalidArgument. Cost: about linear in launches and moves.
void verify(const Plan& plan);

}  // namespace braid
