#include "braid/schedule/sync_ops.h"

#include <algorithm>

#include "braid/ops/remote_access.h"

namespace braid {

bool SyncOp::meets(int a, int b) const {
  const std::vector<int>& group = attrs[a]->group;
  return group.size() == attrs.size() || std::ranges::count(group, b) > 0;
}

bool SyncOp::has_input(ValueId id) const {
  return std::ranges::count(*inputs, id) > 0;
}

bool SyncOp::opens(ValueId id) const {
  return std::ranges::count(*outputs, id) > 0;
}

bool SyncOp::closes(ValueId id, ValueId counters) const {
  const auto begin = inputs->begin() + ops::kSyncFirstClosed;
  return (*inputs)[ops::kSyncArrivals] == counters &&
         (id == counters || std::count(begin, begin + ops::kSyncMaxClosed, id) > 0);
}

SyncOps::SyncOps(std::span<const RankView> ranks) : ranks_(ranks) {
  const Program& program = ranks[0].program();
  named_by_.resize(program.values.size());
  for (size_t o = 0; o < program.ops.size(); ++o) {
    const Op& sync = program.ops[o];
    if (sync.def->remote != RemoteUse::meets) continue;
    const int self = static_cast<int>(syncs_.size());
    SyncOp& made = syncs_.emplace_back();
    made.op = static_cast<int>(o);
    made.inputs = &sync.inputs;
    made.outputs = &sync.outputs;
    for (const RankView& rank : ranks) {
      made.attrs.push_back(&rank.program().ops[o].attrs.as<ops::SyncAttrs>());
    }
    for (const auto* ids : {&sync.inputs, &sync.outputs}) {
      for (ValueId id : *ids) {
        if (id == kNoValue) continue;
        std::vector<int>& by = named_by_[id];
        if (by.empty() || by.back() != self) by.push_back(self);
      }
    }
  }
}

void SyncOps::check_groups() const {
  const int P = static_cast<int>(ranks_.size());
  for (const SyncOp& sync : syncs_) {
    for (int p = 0; p < P; ++p) {
      const std::vector<int>& group = sync.attrs[p]->group;
      bool alike = group.empty() || std::ranges::count(group, p) == 1;
      for (int q : group) {
        alike = alike && 0 <= q && q < P && sync.attrs[q]->group == group;
      }
      if (alike) continue;
      ranks_[p].refuse(
          op(p, sync.op), 0,
          fmt::format("channels: rank {} meets ranks {} there, and not all of these meet the same "
                      "ranks",
                      p, fmt::join(group, ", ")));
    }
  }
}

void SyncOps::check_arrivals() const {
  for (const SyncOp& sync : syncs_) {
    const ValueId counters = (*sync.inputs)[ops::kSyncArrivals];
    if (counters == kNoValue) continue;
    std::vector<int> pushes;  // ops before the sync
    for (int o = 0; o < sync.op; ++o) {
      if (op(0, o).def->remote == RemoteUse::pushes && op(0, o).inputs[0] == counters)
        pushes.push_back(o);
    }
    for (const RankView& from : ranks_) check_arrivals(sync, counters, pushes, from);
  }
}

void SyncOps::check_arrivals(const SyncOp& sync, ValueId counters, const std::vector<int>& pushes,
                             const RankView& from) const {
  const int P = static_cast<int>(ranks_.size()), p = from.rank();
  std::vector<int64_t> told(ranks_.size());
  for (int o : pushes) {
    for (int mb = 0; mb < from.micro_batches(); ++mb) {
      const int push = from.launch_of(o, mb), wait = from.launch_of(sync.op, mb);
      if (push <= wait) continue;  // a fused op pushes before it waits
      from.refuse(op(p, o), mb,
                  fmt::format("no deadlock: {} comes after {}, in which other ranks wait for the "
                              "push",
                              from.name(push), from.name(wait)));
    }
    for (int q : ops::told_ranks(op(p, o))) {
      if (q < 0 || q >= P) {
        from.refuse(op(p, o), 0, fmt::format("one-sided: op {} names rank {} of {}", o, q, P));
      }
      ++told[q];
    }
  }
  for (int q = 0; q < P; ++q) {
    const std::vector<int64_t>& arrivals = sync.attrs[q]->arrivals;
    const size_t at = p;
    const int64_t expected = at < arrivals.size() ? arrivals[at] : 0;
    const int64_t come = told[q];
    if (expected == come) continue;
    ranks_[q].refuse(
        op(q, sync.op), 0,
        fmt::format(
            "{}: rank {} waits for {} pushes of rank {} to %{}, and rank {} makes {} before",
            expected < come ? "R3 (RAW)" : "no deadlock", q, expected, p, counters, p, come));
  }
}

}  // namespace braid
