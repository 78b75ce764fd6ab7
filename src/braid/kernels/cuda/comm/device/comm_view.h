#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>

#include "braid/fabric/peer/wait_report.h"
#include "braid/kernels/cuda/comm/comm_config.h"

// The memory through which the kernels of a DeviceComm talk, and why no data are overrun.
//
// A DeviceComm's collectives run in one order, the same on every rank: one stream, or streams that
// wait for each other. Collective e (its epoch, from 1) has the same e on all ranks. A kernel reads
// e - 1 from its CTA's copy in device memory after its dependency wait and writes e there when it
// is done: a captured graph that is replayed goes on counting, and no host takes part.
//
// Lines. Rank p's line i for q in collective e is line i of the slot (e % 2, p) of q's staging
// memory: 16 bytes, stored as one, that hold data and e.
//   RAW: who sees e in a line sees its data. Banks hold e or e - 2, e - 4, ... before: never e (but
//        after 2^32 collectives).
//   WAR: p stores lines of e after its kernel of e - 1 has ended, so it has all lines that q sent
//        in e - 1; q sent those after its kernel of e - 2 had ended. So q has read bank e % 2 of
//        e - 2 before p overwrites it. A collective in which p takes nothing from q says nothing of
//        q: there p waits for a flag instead (an empty part still sends one line).
// Bare lines. They hold data alone, 16 bytes, in slots of their own, half as long. Such a line is
// empty, each word kNoWord, until its words are there, and who has read it empties it: its store is
// performed when its kernel has ended, so as above before the line is sent again.
//
// Flags. Rank p's CTA c writes 2 e - 1 (entry) and 2 e (exit) into flag (p, c) of q with release at
// system scope, and q's CTA c waits until it sees at least that. Values only grow; p passes on to
// e + 1 only after q's exit of e, so it is never more than one value ahead.
//   RAW: p's x is made before p's kernel passes its dependency wait, so before p's entry flag.
//        What p stored into q's y is there before p's exit flag.
//   WAR: q's y may be overwritten once q's entry flag says that q's earlier readers are done;
//        p's x once q's exit flag says that q's CTA c has read its share of it.
// Programmatic dependent launch changes nothing: all of this is after the dependency wait, which
// ends when the earlier kernel has ended and its memory is visible.
//
// The kernel after this one may be launched only then: launched earlier it would let the one after
// itself go too, and a chain of them would hold every SM.
//
// Every CTA of such a kernel spins: config.ctas of them must be resident together, so kernels that
// spin at once on one GPU must fit it together.
namespace braid::cuda {

// Stream verbs: signals that ranks exchange by kernels of their own.
constexpr int kMaxStreamSignals = 256;

// State of a rank, in the rank's device memory.
struct CommControl {
  uint32_t epoch[kMaxCommCtas];                 // own: of the last collective, a copy for each CTA
  uint32_t flags[kMaxCommRanks][kMaxCommCtas];  // [from, CTA], written by peers
  uint32_t signals[kMaxCommRanks][kMaxStreamSignals];    // [from, slot], written by peers
  uint32_t signalled[kMaxCommRanks][kMaxStreamSignals];  // own: [to, slot], signals sent
  uint32_t awaited[kMaxCommRanks][kMaxStreamSignals];    // own: [from, slot], signals waited for
};

// A kernel's argument, passed by value. Indices count in the group. Parameters come through a cache
// that is cold at each launch: fields that every kernel needs first are neighbours.
struct CommView {
  int rank;
  int ranks;
  CommControl* own;         // control[rank]
  const uint32_t* aborted;  // own word of PeerControl
  uint4* own_staging;       // staging[rank]
  uint4* next_staging;      // staging[(rank + 1) % ranks]: the only other one at P = 2
  int64_t lines;            // of a slot
  uint64_t deadline_ns;
  uint32_t tag;
  uint4* staging[kMaxCommRanks];        // [2, P, lines], [2, P, lines / 2] at each rank
  CommControl* control[kMaxCommRanks];  // at each rank
  fabric::PeerControl* peer_control[kMaxCommRanks];
  fabric::WaitReport* report;  // pinned host memory, this rank's
  int32_t world_rank[kMaxCommRanks];
};

}  // namespace braid::cuda
