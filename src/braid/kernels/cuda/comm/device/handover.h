#pragma once

#include <span>

#include "braid/kernels/cuda/comm/device/one_sided.h"
#include "braid/kernels/cuda/comm/device/push_rows.h"
#include "braid/kernels/cuda/comm/handover_run.h"
#include "braid/kernels/cuda/decode/device/states.h"

// A handover as one launch (handover_run.h). The first CTAs store rows at the peers; each CTA then
// does its part of the last op, once rows that the part reads have come:
//   arrivals[peer] += 1 once all of the peer's rows are stored, the own one once all rows are;
//   wait: arrivals[from] >= expected[from].
// CTAs wait for CTAs of other GPUs, so all must run at once: at most one for each SM, and small
// enough to begin beside attention's CTAs.
namespace braid::cuda {

struct HandoverParams {
  PushRowsParams push;               // `ended` has a count for each peer
  int8_t peer[kMaxPushPieces];       // of each piece, among the push's peers
  int8_t own;                        // this rank among the peers; -1: it sends itself nothing
  uint16_t shares[kMaxCommRanks];    // [peers] CTAs' shares of the peer's pieces; own: of all
  int32_t pushers;                   // CTAs that store: the first ones
  const uint32_t* arrivals;          // this rank's counters
  uint32_t expected[kMaxCommRanks];  // [world]; 0: nothing
};

// Rows of k and v to their slots of the cache; rows without a slot go nowhere.
struct KeepRowsArgs {
  const uint4* from[2];  // [rows, words]
  uint4* to[2];          // [slots, words]
  const int32_t* at;     // [rows]
  int64_t slots;
  int rows;
  int words;
};

void load_handovers();
void hand_over_and_merge(const CommView& view, const HandoverParams& params, int ctas,
                         const MergeStatesParams& merge, LaunchContext context);
void hand_over_and_keep(const CommView& view, const HandoverParams& params, int ctas,
                        const KeepRowsArgs& keep, LaunchContext context);

}  // namespace braid::cuda
