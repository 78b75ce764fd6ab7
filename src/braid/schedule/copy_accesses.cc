#include "braid/schedule/copy_accesses.h"

#include <algorithm>
#include <limits>

#include "braid/schedule/dependencies.h"
#include "braid/schedule/launch_waits.h"

namespace braid {
namespace {

ops::BlockAccess whole(size_t input, bool writes) {
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  return {.input = input, .writes = writes, .rows = kAll, .heads = kAll};
}

bool is_remote(const CopyAccess& access) {
  return access.block.rank != ops::BlockAccess::kSelf;
}

// a has ended before b begins, in the copy of `owner`.
bool ordered(std::span<const RankView> ranks, const RankView& owner, const CopyAccess& a,
             const CopyAccess& b) {
  if (owner.order().before_access(a.until, b.from, b.phase)) return true;
  // Both ranks meet in this sync: one rank after its access, the other before.
  if (a.until == b.from && a.met && is_remote(b)) return true;
  // A rank's reads have ended when its next launch begins; writes may still be on their way.
  return a.by == b.by && !a.block.writes && ranks[a.by].order().before_access(a.launch, b.launch);
}

std::string_view rule_of(const CopyAccess& a, const CopyAccess& b) {
  if (is_remote(a)) return a.block.writes ? "R3" : "R1";
  if (is_remote(b)) return b.block.writes ? "R2" : "R1";
  return "open buffers";
}

}  // namespace

void add_own_accesses(const RankView& owner, const std::vector<bool>& shared,
                      const std::function<CopyAccesses&(ValueId id, int micro_batch)>& accesses) {
  for (int i = 0; i < owner.launches(); ++i) {
    owner.for_each_call(i, [&](const Op& op, int index, int mb) {
      if (op.def->remote == RemoteUse::meets || !op.def->runs) return;
      const auto is_shared = [&](ValueId id) { return id != kNoValue && shared[id]; };
      if (!std::ranges::any_of(op.inputs, is_shared) &&
          !std::ranges::any_of(op.outputs, is_shared)) {
        return;
      }
      const auto add = [&](ValueId id, const ops::BlockAccess& block, int phase, bool open) {
        accesses(id, mb).push_back({.by = owner.rank(),
                                    .op = index,
                                    .launch = i,
                                    .from = i,
                                    .phase = phase,
                                    .until = i,
                                    .open = open,
                                    .block = block});
      };
      for (const ops::BlockAccess& block : ops::block_accesses(op)) {
        const ValueId id = op.inputs[block.input];
        if (block.rank != ops::BlockAccess::kSelf || !is_shared(id)) continue;
        add(id, block, 0, block.writes && !mutates(op, block.input));
      }
      for (size_t k = 0; k < op.inputs.size(); ++k) {
        if (!is_shared(op.inputs[k]) || ops::accessed_by_blocks(op, k)) continue;
        const int phase = first_phase(op, k);
        if (phase >= 0) add(op.inputs[k], whole(k, mutates(op, k)), phase, false);
      }
      for (ValueId id : op.outputs) {
        if (is_shared(id)) add(id, whole(0, true), 0, false);
      }
    });
  }
}

void verify_copy(std::span<const RankView> ranks, int owner, ValueId id, int micro_batch,
                 const CopyAccesses& accesses) {
  const RankView& view = ranks[owner];
  const auto check = [&](const CopyAccess& a, const CopyAccess& b) {
    const bool one_call = a.op == b.op && a.by == b.by;
    if (one_call && !(a.block.writes && b.block.writes)) return;
    if (a.op != b.op && ordered(ranks, view, a, b)) return;
    const std::string_view hazard = !b.block.writes ? "RAW" : a.block.writes ? "WAW" : "WAR";
    const auto& by = ranks[b.by];
    by.refuse(by.op(b.launch), micro_batch,
              fmt::format(
                  "{} ({}): launch {} of rank {} {} rows of rank {}'s %{} that {} of rank {} "
                  "{}, and the latter need not have ended",
                  rule_of(a, b), hazard, b.launch, b.by, b.block.writes ? "writes" : "reads", owner,
                  id, ranks[a.by].name(a.launch), a.by, a.block.writes ? "writes" : "reads"));
  };
  for (size_t i = 0; i < accesses.size(); ++i) {
    const CopyAccess& a = accesses[i];
    if (!a.block.writes) continue;
    for (size_t j = 0; j < accesses.size(); ++j) {
      const CopyAccess& b = accesses[j];
      if (j == i || (b.block.writes && j < i)) continue;  // two writes: once
      if (!(a.open || b.open) || !overlap(a.block, b.block)) continue;
      if (a.op <= b.op) {
        check(a, b);
      } else {
        check(b, a);
      }
    }
  }
}

}  // namespace braid
