#pragma once

#include <functional>
#include <span>
#include <vector>

#include "braid/ops/remote_access.h"
#include "braid/schedule/rank_view.h"

namespace braid {

// An access of one rank's copy of a value, as that rank, the owner, knows it: it lies between the
// begin of launch `from` and the end of launch `until` of the owner.
struct CopyAccess {
  int by = 0;      // the rank that reads or writes
  int op = 0;      // and the op
  int launch = 0;  // of rank `by`
  int from = 0;
  int phase = 0;  // of `from`: LaunchOrder::access_clock
  int until = 0;
  // `until` is a meeting that ends after the access on all its ranks, not on the owner alone.
  bool met = false;
  // The owner's own order does not cover it: another rank's access, or rows of an open buffer.
  bool open = false;
  ops::BlockAccess block;
};

// Accesses of a value of a micro-batch in one rank's copy.
using CopyAccesses = std::vector<CopyAccess>;

// Adds the owner's own accesses of its copies, of values that `shared` [values] tells.
void add_own_accesses(const RankView& owner, const std::vector<bool>& shared,
                      const std::function<CopyAccesses&(ValueId id, int micro_batch)>& accesses);

// Fails where two accesses of a copy have rows in common, one writes, and neither has ended before
// the other begins, in program order.
void verify_copy(std::span<const RankView> ranks, int owner, ValueId id, int micro_batch,
                 const CopyAccesses& accesses);

}  // namespace braid
