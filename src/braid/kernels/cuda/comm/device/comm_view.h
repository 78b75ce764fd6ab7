#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>

#include "braid/fabric/peer/wait_report.h"
#include "braid/kernels/cuda/comm/comm_config.h"

// The memory through which a DeviceComm's kernels talk, and the proof that no data are overrun.
//
// A DeviceComm's collectives run in one order, the same on every rank: one stream, or streams that
// wait for each other. Collective e (its epoch, from 1) has the same e on all ranks. A kernel reads
// e - 1 from its CTA's copy in device memory after its dependency wait, and writes e to the copy at
// its end: a replayed graph goes on counting, and no host takes part.
//
// Lines. Rank p's line i for q in collective e is line i of the slot (e % 2, p) of q's staging
// memory: 16 bytes, stored as one, that hold data and e.
//   RAW: a reader that sees e in a line sees the line's data. Before, banks hold e - 2, e - 4, ...,
//        never e (but after 2^32 collectives).
//   WAR: p stores lines of e after its kernel of e - 1 has ended, so p has all lines that q sent
//        in e - 1; q sent these lines after its kernel of e - 2 had ended. So q has read bank
//        e % 2 of e - 2 before p overwrites the bank. If p takes nothing from q in a collective,
//        p waits for a flag instead (an empty part still sends a line).
// Bare lines hold data alone, 16 bytes, in separate slots, half as long. A bare line is empty, each
// word kNoWord, until its words arrive, and its reader empties the line: the reader's store is
// performed when the reader's kernel has ended, so as above before the line is sent again.
//
// Flags. Rank p's CTA c writes 2 e - 1 (entry) and 2 e (exit) into flag (p, c) of q with release at
// system scope, and q's CTA c waits until the flag has at least this value. Values only grow; p
// passes on to e + 1 only after q's exit of e, so p is never more than a value ahead.
//   RAW: p's x is made before p's kernel passes its dependency wait, so before p's entry flag.
//        p's stores into q's y are performed before p's exit flag.
//   WAR: q's y may be overwritten once q's entry flag says that q's earlier readers are done;
//        p's x once q's exit flag says that q's CTA c has read its share.
// Programmatic dependent launch changes nothing: all accesses follow the dependency wait, which
// ends when the earlier kernel has ended and its memory is visible.
//
// The next kernel may be launched only then: launched earlier, the next kernel would let its own
// successor go too, and a chain of kernels would hold every SM.
//
// Every CTA spins: config.ctas CTAs must be resident together, so kernels that spin at once on a
// GPU must fit the GPU together.
namespace braid::cuda {

// Stream verbs: signals that ranks exchange by separate kernels.
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
