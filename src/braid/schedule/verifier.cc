#include "braid/schedule/verifier.h"

#include <algorithm>

#include "braid/schedule/one_sided_verifier.h"
#include "braid/schedule/partition.h"
#include "braid/schedule/rank_verifier.h"

namespace braid {
namespace {

// All ranks together.
class WorldCheck {
 public:
  explicit WorldCheck(const Plan& plan) : programs_(plan.programs), schedules_(plan.schedules) {}

  void run() const {
    check_offsets();
    for (Stream stream : kStreams) check_channel(stream);
    check_deadlock();
  }

 private:
  const Op& op(size_t rank, int i) const {
    return schedules_[rank].op(programs_[rank], schedules_[rank].launches[i]);
  }
  const Launch& launch(size_t rank, int i) const { return schedules_[rank].launches[i]; }
  std::string name(size_t rank, int i) const {
    return fmt::format("{} at '{}', micro-batch {}", op(rank, i).def->kind, op(rank, i).scope,
                       launch(rank, i).micro_batch);
  }

  void check_offsets() const {
    for (size_t r = 1; r < schedules_.size(); ++r) {
      const MemoryPlan &a = schedules_[0].memory, &b = schedules_[r].memory;
      if (a.value_offset == b.value_offset && a.merged == b.merged) continue;
      for (int i = 0; i < static_cast<int>(schedules_[0].launches.size()); ++i) {
        const Schedule& first = schedules_[0];
        first.for_each_call(programs_[0], launch(0, i), [&](const Op& op, int, int mb) {
          for (const auto* ids : {&op.inputs, &op.outputs}) {
            for (ValueId id : *ids) check_offset(r, i, id, mb);
          }
        });
      }
    }
  }

  void check_offset(size_t rank, int i, ValueId id, int mb) const {
    const MemoryPlan &a = schedules_[0].memory, &b = schedules_[rank].memory;
    if (id == kNoValue) return;
    const auto v = static_cast<size_t>(id);
    if (a.offset(id, mb) == b.offset(id, mb) && a.merged[v] == b.merged[v]) return;
    fail(ErrorCode::kInvalidArgument,
         "schedule '{}': {}: same offsets: %{} of micro-batch {} lies at {} on rank {} and at {} "
         "on rank 0",
         schedules_[rank].strategy, name(0, i), id, mb, b.offset(id, mb), rank, a.offset(id, mb));
  }

  std::vector<int> communication(size_t rank, Stream stream) const {
    std::vector<int> result;
    for (int i = 0; i < static_cast<int>(schedules_[rank].launches.size()); ++i) {
      if (launch(rank, i).stream == stream && collective(op(rank, i))) result.push_back(i);
    }
    return result;
  }

  void check_channel(Stream stream) const {
    const std::vector<int> first = communication(0, stream);
    for (size_t r = 1; r < schedules_.size(); ++r) {
      const std::vector<int> other = communication(r, stream);
      for (size_t n = 0; n < std::max(first.size(), other.size()); ++n) {
        if (n < first.size() && n < other.size() && same(r, first[n], other[n])) {
          check_group(r, first[n], other[n]);
          continue;
        }
        const std::string here = n < first.size() ? name(0, first[n]) : "nothing";
        const std::string there = n < other.size() ? name(r, other[n]) : "nothing";
        fail(ErrorCode::kInvalidArgument,
             "schedule '{}': {}: channels: communication {} of the {} stream is {} on rank 0 and "
             "{} on rank {}: one would overwrite the other's buffer before it is read",
             schedules_[r].strategy, n < first.size() ? here : there, n, to_string(stream), here,
             there, r);
      }
    }
  }

  // Ranks meet inside a group: launches of the same group on each rank.
  void check_group(size_t rank, int a, int b) const {
    const LaunchGroup* const x = schedules_[0].group_of(a);
    const LaunchGroup* const y = schedules_[rank].group_of(b);
    if (x == nullptr && y == nullptr) return;
    const bool alike = x != nullptr && y != nullptr && x->form == y->form &&
                       x->kernel == y->kernel && x->first == y->first && x->count == y->count;
    if (alike) return;
    const auto text = [](const LaunchGroup* group) {
      if (group == nullptr) return std::string("apart");
      return fmt::format("in the {} of launches [{}, {})", group->form->name, group->first,
                         group->end());
    };
    fail(ErrorCode::kInvalidArgument,
         "schedule '{}': {}: launches as one: it is {} on rank 0 and {} on rank {}",
         schedules_[rank].strategy, name(0, a), text(x), text(y), rank);
  }

  bool same(size_t rank, int a, int b) const {
    const Launch &x = launch(0, a), &y = launch(rank, b);
    return op(0, a).def->kind == op(rank, b).def->kind && x.op == y.op && x.num_ops == y.num_ops &&
           x.micro_batch == y.micro_batch && x.num_micro_batches == y.num_micro_batches &&
           x.joined == y.joined;
  }

  // Every rank runs its launches one at a time in recorded order; a communication ends after all
  // its ranks have come. Concurrent streams only take constraints away.
  void check_deadlock() const {
    std::vector<int> next(schedules_.size(), 0);
    const auto size = [&](size_t r) { return static_cast<int>(schedules_[r].launches.size()); };
    for (;;) {
      bool all_done = true;
      for (size_t r = 0; r < next.size(); ++r) {
        while (next[r] < size(r) && !collective(op(r, next[r]))) ++next[r];
        all_done = all_done && next[r] == size(r);
      }
      if (all_done) return;
      for (size_t r = 1; r < next.size(); ++r) {
        const bool met = next[0] < size(0) && next[r] < size(r) &&
                         launch(0, next[0]).stream == launch(r, next[r]).stream &&
                         same(r, next[0], next[r]);
        if (met) continue;
        fail(ErrorCode::kInvalidArgument,
             "schedule '{}': {}: no deadlock: rank 0 waits there while rank {} waits in {}",
             schedules_[r].strategy, next[0] < size(0) ? name(0, next[0]) : "its end", r,
             next[r] < size(r) ? name(r, next[r]) : "its end");
      }
      for (int& n : next) ++n;
    }
  }

  const std::vector<Program>& programs_;
  const std::vector<Schedule>& schedules_;
};

}  // namespace

void verify(const Plan& plan) {
  const int P = plan.ranks();
  BRAID_CHECK(P > 0 && plan.programs.size() == plan.schedules.size());
  std::vector<RankView> ranks;
  ranks.reserve(plan.programs.size());
  for (int r = 0; r < P; ++r) {
    const size_t at = r;
    verify_rank(ranks.emplace_back(plan.programs[at], plan.schedules[at], r, P));
  }
  WorldCheck(plan).run();
  verify_one_sided(ranks);
}

}  // namespace braid
