#pragma once

#include <functional>
#include <span>
#include <vector>

#include "braid/ops/remote_access.h"
#include "braid/schedule/rank_view.h"

namespace braid {

// An access to a rank's copy of a value. The copy's owner knows two bounds: the access lies between
// the begin of the owner's launch `from` and the end of the owner's launch `until`.
struct CopyAccess {
  int by = 0;      // the reading or writing rank
  int op = 0;      // the reading or writing op
  int launch = 0;  // of rank `by`
  int from = 0;
  int phase = 0;  // of `from`: LaunchOrder::access_clock
  int until = 0;
  // `until` is a meeting, and ends after the access on all its ranks, not on the owner alone.
  bool met = false;
  // Outside the owner's own order: another rank's access, or rows of an open buffer.
  bool open = false;
  ops::BlockAccess block;
};

// Accesses to one rank's copy of a micro-batch's value.
using CopyAccesses = std::vector<CopyAccess>;

// Adds the owner's accesses to its own copies, for values with `shared` [values] true.
void add_own_accesses(const RankView& owner, const std::vector<bool>& shared,
                      const std::function<CopyAccesses&(ValueId id, int micro_batch)>& accesses);

// Fails if two accesses of a copy have rows in common, at least one access writes, and neither
// access ends before the begin of the other, in program order.
void verify_copy(std::span<const RankView> ranks, int owner, ValueId id, int micro_batch,
                 const CopyAccesses& accesses);

}  // namespace braid
