#include "braid/schedule/group_verifier.h"

#include <algorithm>

namespace braid {
namespace {

class GroupCheck {
 public:
  GroupCheck(const RankView& rank, const LaunchGroup& group) : rank_(rank), group_(group) {}

  void check_range(int after) const {
    const bool in_range = group_.form != nullptr && group_.count >= 2 && group_.first >= after &&
                          group_.end() <= rank_.launches();
    if (in_range) return;
    fail(ErrorCode::kInvalidArgument,
         "schedule '{}': launches as one: a group of launches [{}, {}) of {} begins before {}, has "
         "no form or fewer than two members",
         rank_.schedule().strategy, group_.first, group_.end(), rank_.launches(), after);
  }

  void check_members() const {
    for (int i = group_.first; i < group_.end(); ++i) {
      if (rank_.micro_batches() > 1 || !rank_.launch(i).joined.empty()) {
        refuse(i, "works on a part of the batch");
      }
      if (!group_.form->takes(rank_.op(i))) refuse(i, "is no op of this form");
      if (rank_.launch(i).stream != rank_.launch(group_.first).stream) {
        refuse(i, fmt::format("runs on another stream than {}", rank_.name(group_.first)));
      }
      if (i == group_.first) continue;
      if (!rank_.launch(i).waits.empty()) {
        refuse(i, fmt::format("waits for {} inside the group",
                              rank_.name(rank_.launch(i).waits[0].launch)));
      }
      if (!takes_result_of(i, i - 1)) {
        refuse(i, fmt::format("takes no result of {}", rank_.name(i - 1)));
      }
    }
    for (const Wait& wait : rank_.launch(group_.first).waits) {
      if (wait.inside() || wait.partial()) {
        refuse(group_.first, fmt::format("runs beside {}", rank_.name(wait.launch)));
      }
    }
  }

  // Launches of other streams end before the group begins, or begin after the group's end.
  void check_others() const {
    const int last = group_.end() - 1;
    for (int i = 0; i < rank_.launches(); ++i) {
      for (const Wait& wait : rank_.launch(i).waits) {
        const bool whole = wait.launch == last && !wait.partial();
        if (wait.launch < group_.first || wait.launch > last || whole) continue;
        refuse(wait.launch, fmt::format("is awaited by {} inside the group", rank_.name(i)));
      }
      if (rank_.launch(i).stream == rank_.launch(last).stream || !rank_.op(i).def->runs) continue;
      if (rank_.order().before(i, group_.first) || rank_.order().before(last, i)) continue;
      refuse(group_.first, fmt::format("may run beside {}", rank_.name(i)));
    }
  }

 private:
  // Results are outputs, mutated inputs, and a push's destinations, which are inputs of it.
  bool takes_result_of(int reader, int maker) const {
    const Op& made = rank_.op(maker);
    const auto taken = [&](ValueId id) {
      return id != kNoValue && std::ranges::count(rank_.op(reader).inputs, id) > 0;
    };
    if (made.def->remote == RemoteUse::pushes && std::ranges::any_of(made.inputs, taken)) {
      return true;
    }
    return std::ranges::any_of(made.outputs, taken) ||
           std::ranges::any_of(made.def->mutated_inputs,
                               [&](size_t i) { return taken(made.inputs[i]); });
  }
  [[noreturn]] void refuse(int i, std::string_view why) const {
    rank_.refuse(rank_.op(i), rank_.launch(i).micro_batch,
                 fmt::format("launches as one: in the {} of launches [{}, {}) launch {} {}",
                             group_.form->name, group_.first, group_.end(), i, why));
  }

  const RankView& rank_;
  const LaunchGroup& group_;
};

}  // namespace

void verify_groups(const RankView& rank) {
  int after = 0;
  for (const LaunchGroup& group : rank.schedule().groups) {
    const GroupCheck check(rank, group);
    check.check_range(after);
    check.check_members();
    check.check_others();
    after = group.end();
  }
}

}  // namespace braid
