#pragma once

#include <span>
#include <vector>

#include "braid/ops/one_sided.h"
#include "braid/schedule/rank_view.h"

namespace braid {

// A sync of the Programs, with the same operands on all ranks.
struct SyncOp {
  int op = 0;                                // index into Program::ops
  std::vector<const ops::SyncAttrs*> attrs;  // [ranks]
  const std::vector<ValueId>* inputs = nullptr;
  const std::vector<ValueId>* outputs = nullptr;

  // Both ranks belong to a group that meets in the sync.
  bool meets(int a, int b) const;
  bool has_input(ValueId id) const;
  bool opens(ValueId id) const;
  // The sync waits for pushes counted by these counters, and closes the value.
  bool closes(ValueId id, ValueId counters) const;
};

// All syncs of a Program.
class SyncOps {
 public:
  explicit SyncOps(std::span<const RankView> ranks);

  // Fails if ranks disagree on the members of a sync.
  void check_groups() const;
  // Fails if a sync does not wait for all earlier pushes, waits for more, or waits for a push
  // launched after the sync.
  void check_arrivals() const;

  // The first or the last sync with a value as operand for which `is` holds; null:
  // none.
  template <class Is>
  const SyncOp* first(ValueId id, Is&& is) const {
    for (int s : named_by_[id]) {
      if (const SyncOp& sync = syncs_[s]; is(sync)) return &sync;
    }
    return nullptr;
  }
  template <class Is>
  const SyncOp* last(ValueId id, Is&& is) const {
    const std::vector<int>& by = named_by_[id];
    for (auto s = by.rbegin(); s != by.rend(); ++s) {
      if (const SyncOp& sync = syncs_[*s]; is(sync)) return &sync;
    }
    return nullptr;
  }
  const std::vector<SyncOp>& all() const { return syncs_; }

 private:
  const Op& op(int rank, int index) const { return ranks_[rank].program().ops[index]; }
  void check_arrivals(const SyncOp& sync, ValueId counters, const std::vector<int>& pushes,
                      const RankView& from) const;

  std::span<const RankView> ranks_;
  std::vector<SyncOp> syncs_;               // in program order
  std::vector<std::vector<int>> named_by_;  // [values] syncs_
};

}  // namespace braid
