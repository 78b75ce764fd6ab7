#include "braid/schedule/one_sided_verifier.h"

#include <algorithm>
#include <optional>

#include "braid/ops/one_sided.h"
#include "braid/schedule/copy_accesses.h"
#include "braid/schedule/sync_ops.h"

namespace braid {
namespace {

// An access by launch `launch` of rank `by` to another rank's copy.
struct Remote {
  int by = 0;
  int launch = 0;
  int op = 0;  // index into Program::ops; the first that a fused op replaces
  int owner = 0;
  ValueId id = kNoValue;
  int micro_batch = 0;
};

bool names_ranks(const OpDef* def) {
  return def->remote != RemoteUse::none;
}
bool pulls(const Op& op) {
  return op.def->remote == RemoteUse::pulls;
}
bool pushes(const Op& op) {
  return op.def->remote == RemoteUse::pushes;
}

class OneSidedCheck {
 public:
  explicit OneSidedCheck(std::span<const RankView> ranks)
      : ranks_(ranks), P_(static_cast<int>(ranks.size())), M_(ranks[0].micro_batches()) {}

  void run() {
    if (!find_ops()) return;
    syncs_->check_groups();
    syncs_->check_arrivals();
    for (const RankView& rank : ranks_) {
      for (int i = 0; i < rank.launches(); ++i) check_launch(rank, i);
    }
    check_copies();
  }

 private:
  const RankView& view(int rank) const { return ranks_[rank]; }
  const std::vector<Op>& ops_of(int rank) const { return view(rank).program().ops; }
  const Op& op(int rank, int index) const { return ops_of(rank)[index]; }
  [[noreturn]] void refuse(const Remote& at, const std::string& rule) const {
    view(at.by).refuse(view(at.by).op(at.launch), at.micro_batch, rule);
  }

  // All ranks name the same values in the same ops. False: no op is about other ranks.
  bool find_ops() {
    const size_t values = view(0).program().values.size();
    bool any = false;
    for (int p = 0; p < P_; ++p) {
      const bool alike = ops_of(p).size() == ops_of(0).size() && view(p).micro_batches() == M_ &&
                         view(p).program().values.size() == values;
      for (size_t o = 0; o < ops_of(p).size(); ++o) {
        const Op& here = ops_of(p)[o];
        if (!names_ranks(here.def)) continue;
        any = true;
        const Op* first = o < ops_of(0).size() ? &ops_of(0)[o] : nullptr;
        if (first == nullptr || first->def != here.def || first->inputs != here.inputs ||
            first->outputs != here.outputs || !alike) {
          view(p).refuse(here, 0,
                         fmt::format("one-sided: op {} of rank {} is another on rank 0, or is of "
                                     "other values",
                                     o, p));
        }
      }
    }
    if (!any) return false;
    shared_.assign(values, false);
    slot_.assign(static_cast<size_t>(P_ * M_) * values, -1);
    syncs_.emplace(ranks_);
    for (const SyncOp& sync : syncs_->all()) {
      for (ValueId id : *sync.outputs) shared_[id] = true;
    }
    return true;
  }

  // Checks a launch's accesses to other ranks' copies.
  void check_launch(const RankView& rank, int i) {
    rank.for_each_call(i, [&](const Op& op, int index, int mb) {
      check_call(rank, op, {.by = rank.rank(), .launch = i, .op = index, .micro_batch = mb});
    });
  }

  void check_call(const RankView& rank, const Op& op, Remote at) {
    const int i = at.launch;
    if (!names_ranks(op.def) || op.def->remote == RemoteUse::meets) return;
    if (pulls(op) || pushes(op)) {
      if (const int of = ops::rank_of(op); of != rank.rank()) {
        rank.refuse(
            op, at.micro_batch,
            fmt::format("one-sided: launch {} of rank {} is rank {}'s", i, rank.rank(), of));
      }
    }
    const std::vector<ops::BlockAccess> blocks = ops::block_accesses(op);
    if (pushes(op)) check_counters(at, op);
    if (pulls(op)) check_filled(at, op, blocks);
    // Blocks of an owner and an input stand between the same syncs.
    std::vector<int> known(static_cast<size_t>(P_) * op.inputs.size(), -1);
    std::vector<CopyAccess> between;
    for (const ops::BlockAccess& block : blocks) {
      if (block.rank == ops::BlockAccess::kSelf) continue;
      check_rank(at, block.rank);
      at.owner = block.rank;
      at.id = op.inputs[block.input];
      int& index = known[static_cast<size_t>(block.rank) * op.inputs.size() + block.input];
      if (index < 0) {
        index = static_cast<int>(between.size());
        between.push_back(block.writes ? write_of(at, op) : read_of(at));
      }
      CopyAccess& access = between[index];
      access.block = block;
      shared_[at.id] = true;
      accesses(at.owner, at.id, at.micro_batch).push_back(access);
    }
  }

  void check_rank(const Remote& at, int peer) const {
    if (0 <= peer && peer < P_) return;
    refuse(at, fmt::format("one-sided: launch {} of rank {} names rank {} of {}", at.launch, at.by,
                           peer, P_));
  }

  // Syncs that, by the Schedule, end before a launch on rank `by`, or follow the launch.
  bool before(const SyncOp& sync, const Remote& at) const {
    const RankView& rank = view(at.by);
    return rank.order().before_access(rank.launch_of(sync.op, at.micro_batch), at.launch);
  }
  bool after(const SyncOp& sync, const Remote& at) const {
    const RankView& rank = view(at.by);
    return rank.order().before(at.launch, rank.launch_of(sync.op, at.micro_batch));
  }

  // Names a sync that is right except for its order, if any.
  std::string instead(const Remote& at, const SyncOp* sync, std::string_view otherwise) const {
    if (sync == nullptr) return std::string(otherwise);
    const RankView& rank = view(at.by);
    return fmt::format("{} and the launch are in no order",
                       rank.name(rank.launch_of(sync->op, at.micro_batch)));
  }

  CopyAccess access(const Remote& at, const SyncOp& from, const SyncOp& until, bool met) const {
    const RankView& owner = view(at.owner);
    return {.by = at.by,
            .op = at.op,
            .launch = at.launch,
            .from = owner.launch_of(from.op, at.micro_batch),
            .until = owner.launch_of(until.op, at.micro_batch),
            .met = met,
            .open = true,
            .block = {}};
  }

  // R1: the owner has made the value before an earlier sync, and keeps the value to a later sync.
  CopyAccess read_of(const Remote& at) const {
    const auto meets = [&](const SyncOp& sync) {
      return sync.has_input(at.id) && sync.meets(at.by, at.owner);
    };
    const auto earlier = [&](const SyncOp& s) { return s.op < at.op && meets(s); };
    const auto later = [&](const SyncOp& s) { return s.op > at.op && meets(s); };
    const SyncOp* from =
        syncs_->last(at.id, [&](const SyncOp& s) { return earlier(s) && before(s, at); });
    if (from == nullptr) {
      refuse(at, fmt::format("R1 (RAW): launch {} of rank {} reads %{} of rank {}, which need not "
                             "be made: {}",
                             at.launch, at.by, at.id, at.owner,
                             instead(at, syncs_->last(at.id, earlier),
                                     "no sync of both ranks before has it as an input")));
    }
    const SyncOp* until =
        syncs_->first(at.id, [&](const SyncOp& s) { return later(s) && after(s, at); });
    if (until == nullptr) {
      refuse(at, fmt::format("R1 (WAR): launch {} of rank {} reads %{} of rank {}, which may be "
                             "gone by then: {}",
                             at.launch, at.by, at.id, at.owner,
                             instead(at, syncs_->first(at.id, later),
                                     "no sync of both ranks after keeps it")));
    }
    return access(at, *from, *until, true);
  }

  // R2: a sync has opened the value.
  const SyncOp& opened(const Remote& at) const {
    const auto opening = [&](const SyncOp& s) {
      return s.opens(at.id) && s.op < at.op && s.meets(at.by, at.owner);
    };
    const SyncOp* open = syncs_->first(at.id, opening);
    if (open == nullptr || !before(*open, at)) {
      refuse(at, fmt::format("R2 (WAR): launch {} of rank {} writes %{} of rank {}, which is not "
                             "open: {}",
                             at.launch, at.by, at.id, at.owner,
                             instead(at, open, "no sync of both ranks before opens it")));
    }
    return *syncs_->last(at.id, [&](const SyncOp& s) {
      return s.op < at.op && s.meets(at.by, at.owner) && before(s, at);
    });
  }

  // R3: the owner closes the value after it has counted the push, or the fused op, at `begin`.
  const SyncOp* closed(const Remote& at, int begin, const Op& push) const {
    return syncs_->first(
        at.id, [&](const SyncOp& s) { return s.op > begin && s.closes(at.id, push.inputs[0]); });
  }

  CopyAccess write_of(const Remote& at, const Op& what) const {
    const SyncOp& from = opened(at);
    if (pushes(what)) {
      const SyncOp* until = closed(at, at.op, what);
      if (until == nullptr) {
        refuse(at, fmt::format("R3 (RAW): launch {} of rank {} writes %{} of rank {}, and no sync "
                               "that waits for it closes %{}",
                               at.launch, at.by, at.id, at.owner, at.id));
      }
      return access(at, from, *until, false);
    }
    // Rows stored by an op while it computes: a later push tells the rows' owner.
    const RankView& rank = view(at.by);
    for (size_t o = static_cast<size_t>(at.op) + 1; o < ops_of(at.by).size(); ++o) {
      const Op& push = ops_of(at.by)[o];
      if (!pushes(push)) continue;
      const std::vector<int> peers = ops::told_ranks(push);
      if (std::ranges::count(peers, at.owner) == 0) continue;
      const int tells = rank.launch_of(static_cast<int>(o), at.micro_batch);
      const bool follows =
          rank.order().before(at.launch, tells) || rank.launch(tells).takes_part_of(at.launch);
      if (!follows) continue;
      if (const SyncOp* until = closed(at, static_cast<int>(o), push)) {
        return access(at, from, *until, false);
      }
    }
    refuse(at, fmt::format("R3 (RAW): launch {} of rank {} stores rows of %{} of rank {}, and no "
                           "push after it tells rank {} for a sync that closes %{}",
                           at.launch, at.by, at.id, at.owner, at.owner, at.id));
  }

  // A push adds to open counters, for which the owner waits.
  void check_counters(Remote at, const Op& push) const {
    at.id = push.inputs[0];
    for (int q : ops::told_ranks(push)) {
      check_rank(at, q);
      at.owner = q;
      opened(at);
      if (closed(at, at.op, push) != nullptr) continue;
      refuse(at, fmt::format("R3 (RAW): launch {} of rank {} adds to the counters %{} of rank {}, "
                             "and no sync waits for them",
                             at.launch, at.by, at.id, q));
    }
  }

  // A meeting opened the pull's buffer, and orders the pull behind the buffer's former users.
  void check_filled(const Remote& at, const Op& pull,
                    const std::vector<ops::BlockAccess>& blocks) const {
    for (const ops::BlockAccess& block : blocks) {
      if (block.rank != ops::BlockAccess::kSelf || !block.writes) continue;
      const ValueId id = pull.inputs[block.input];
      const bool open = syncs_->first(
          id, [&](const SyncOp& s) { return s.opens(id) && !s.attrs[at.by]->group.empty(); });
      if (open) continue;
      refuse(at, fmt::format("R2: launch {} of rank {} fills %{}, which no sync opens", at.launch,
                             at.by, id));
    }
  }

  CopyAccesses& accesses(int owner, ValueId id, int mb) {
    const size_t values = view(0).program().values.size();
    int& slot = slot_[(static_cast<size_t>(owner * M_ + mb) * values) + static_cast<size_t>(id)];
    if (slot < 0) {
      slot = static_cast<int>(copies_.size());
      copies_.emplace_back();
      keys_.push_back({.owner = owner, .id = id, .micro_batch = mb});
    }
    return copies_[slot];
  }

  // A shared value has a single type on all ranks, and accesses of each copy are ordered.
  void check_copies() {
    for (const RankView& rank : ranks_) {
      for (size_t v = 0; v < shared_.size(); ++v) {
        if (!shared_[v]) continue;
        const ValueType &here = rank.program().values[v].type,
                        &first = view(0).program().values[v].type;
        if (here == first) continue;
        fail(ErrorCode::kInvalidArgument,
             "schedule '{}': one-sided: %{} is {} on rank {} and {} on rank 0",
             rank.schedule().strategy, v, to_string(here), rank.rank(), to_string(first));
      }
      add_own_accesses(rank, shared_, [&](ValueId id, int mb) -> CopyAccesses& {
        return accesses(rank.rank(), id, mb);
      });
    }
    for (size_t c = 0; c < copies_.size(); ++c) {
      verify_copy(ranks_, keys_[c].owner, keys_[c].id, keys_[c].micro_batch, copies_[c]);
    }
  }

  std::span<const RankView> ranks_;
  const int P_;
  const int M_;
  std::optional<SyncOps> syncs_;
  std::vector<bool> shared_;  // [values] accessed by other ranks, or open
  std::vector<int> slot_;     // [ranks, micro-batches, values] of copies_; -1: none
  std::vector<CopyAccesses> copies_;
  std::vector<Remote> keys_;  // [copies_]
};

}  // namespace

void verify_one_sided(std::span<const RankView> ranks) {
  OneSidedCheck(ranks).run();
}

}  // namespace braid
