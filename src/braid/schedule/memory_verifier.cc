#include "braid/schedule/memory_verifier.h"

#include <algorithm>
#include <limits>

#include "braid/schedule/partition.h"
#include "braid/schedule/value_views.h"

namespace braid {
namespace {

// A value's bytes, or a launch's scratch, in the arena, with the time of use.
struct Place {
  int64_t begin = 0;
  int64_t end = 0;
  int launch = -1;           // an accessing launch, -1: none
  int last_launch = -1;      // the last that was noted
  bool before_step = false;  // written by the host before the step
  bool after_step = false;   // kept to its end
  // Per stream: launches that have ended before any access begins, and positions + 1 of the last
  // accesses. All accesses to a precede all accesses to b if a.last <= b.first on every stream.
  PerStream<int> first{};
  PerStream<int> last{};
};

// A place's begin and time of use, side by side: many pairs are compared.
struct Use {
  int64_t begin = 0;
  PerStream<int> first{};
  PerStream<int> last{};
};

class MemoryCheck {
 public:
  explicit MemoryCheck(const RankView& rank)
      : rank_(rank),
        program_(rank.program()),
        memory_(rank.schedule().memory),
        M_(rank.micro_batches()),
        owners_(place_owners(program_, M_)) {
    for (int mb = 0; mb < M_; ++mb) batch_ += capacity(mb);
    is_output_.assign(program_.values.size(), false);
    for (ValueId id : program_.outputs) is_output_[id] = true;
  }

  void run() {
    std::vector<Place> all = places();
    std::ranges::sort(all, {}, &Place::begin);
    std::vector<Use> uses;
    uses.reserve(all.size());
    for (const Place& place : all) uses.push_back(use_of(place));
    for (size_t i = 0; i < all.size(); ++i) {
      for (size_t j = i + 1; j < all.size() && uses[j].begin < all[i].end; ++j) {
        if (done_before(uses[i], uses[j]) || done_before(uses[j], uses[i])) continue;
        fail(ErrorCode::kInvalidArgument,
             "schedule '{}': {}: memory: bytes [{}, {}) are shared with {} and neither is done "
             "with before the other begins",
             rank_.schedule().strategy, describe(all[i]), all[j].begin,
             std::min(all[i].end, all[j].end), describe(all[j]));
      }
    }
  }

 private:
  size_t at(ValueId id, int mb) const {
    return (static_cast<size_t>(id) * static_cast<size_t>(M_)) + static_cast<size_t>(mb);
  }
  bool merged(ValueId id) const { return memory_.merged[id]; }

  // With the largest part of the tokens that any rank can have.
  Extents capacity(int mb) const {
    const Extents& capacity = rank_.schedule().micro_batches[mb].capacity;
    return capacity.shard > 0 ? capacity : sharded(capacity, rank_.ranks());
  }

  int64_t bytes_of_value(ValueId id, int mb) const {
    return bytes_of(program_.type_of(id, merged(id) ? program_.capacity : capacity(mb)));
  }

  std::string describe(const Place& place) const {
    if (place.launch < 0) return "an input of the host's";
    return fmt::format("{} at '{}', micro-batch {}", rank_.op(place.launch).def->kind,
                       rank_.op(place.launch).scope, rank_.launch(place.launch).micro_batch);
  }

  bool in_arena(const Place& place) const {
    return place.begin >= 0 && place.begin % MemoryPlan::kAlignment == 0 &&
           place.end <= memory_.arena_bytes;
  }

  void note(Place& place, int i) const {
    if (place.last_launch == i) return;
    const auto& clock = rank_.order().access_clock(i);
    if (place.launch < 0) {
      place.launch = i;
      place.first = clock;
    }
    place.last_launch = i;
    for (size_t s = 0; s < clock.size(); ++s) place.first[s] = std::min(place.first[s], clock[s]);
    int& last = place.last[rank_.order().stream(i)];
    last = std::max(last, rank_.order().position(i) + 1);
  }

  // Nothing is done before the host's writes, and nothing begins after the step.
  static Use use_of(const Place& place) {
    Use use{.begin = place.begin, .first = place.first, .last = place.last};
    if (place.before_step) use.first.fill(-1);
    if (place.after_step) use.last.fill(std::numeric_limits<int>::max());
    return use;
  }

  static bool done_before(const Use& a, const Use& b) {
    for (size_t s = 0; s < a.last.size(); ++s) {
      if (a.last[s] > b.first[s]) return false;
    }
    return true;
  }

  // Notes launch i's access to a value, which must lie at the launches' address.
  void use(std::vector<Place>& values, ValueId id, int mb, int i) const {
    const ValueKind kind = program_.value(id).kind;
    if (kind == ValueKind::weight || kind == ValueKind::state) return;
    const ValueId owner = owners_[id];
    Place& place = values[at(owner, merged(owner) ? 0 : mb)];
    const auto refuse = [&](const std::string& rule) { rank_.refuse(rank_.op(i), mb, rule); };
    if (rank_.launch(i).num_micro_batches > 1 && !merged(id)) {
      refuse(fmt::format("memory: a merged launch uses %{}, which is not", id));
    }
    if (merged(id) && memory_.offset(id, mb) != memory_.offset(id, 0)) {
      refuse(fmt::format("memory: %{} is merged and has two places", id));
    }
    if (owner != id && memory_.offset(id, mb) != memory_.offset(owner, mb)) {
      refuse(fmt::format("memory: %{} does not lie where %{} does, whose rows it has", id, owner));
    }
    if (place.launch < 0) place.begin = memory_.offset(id, mb);
    place.end = std::max(place.end, memory_.offset(id, mb) + bytes_of_value(id, mb));
    if (!in_arena(place)) {
      refuse(fmt::format("memory: %{} lies at [{}, {}) in an arena of {} bytes", id, place.begin,
                         place.end, memory_.arena_bytes));
    }
    if (place.launch < 0) {
      const ValueType& type = program_.value(id).type;
      if (merged(id) && batch_.of(type.axis, 0) > type.shape[0]) {
        refuse(fmt::format("memory: %{} has {} rows for {} of all micro-batches", id, type.shape[0],
                           batch_.of(type.axis, 0)));
      }
      const bool hosts =
          kind == ValueKind::input || (is_output_[id] && type.axis != BatchAxis::none);
      if (hosts && !merged(id)) {
        refuse(fmt::format("memory: %{} is the host's and is not merged", id));
      }
    }
    note(place, i);
  }

  std::vector<Place> places() const {
    std::vector<Place> values(program_.values.size() * static_cast<size_t>(M_));
    std::vector<Place> scratch;
    for (int i = 0; i < rank_.launches(); ++i) {
      const Launch& l = rank_.launch(i);
      rank_.for_each_call(i, [&](const Op& op, int, int mb) {
        for (ValueId id : op.inputs) {
          if (id != kNoValue) use(values, id, mb, i);
        }
        for (ValueId id : op.outputs) {
          use(values, id, mb, i);
          const bool one = merged(id) && program_.value(id).type.axis == BatchAxis::none;
          if (one && l.num_micro_batches < M_) {
            rank_.refuse(
                op, mb,
                fmt::format("memory: %{} has no rows that each micro-batch could write", id));
          }
        }
      });
      if (l.kernel.workspace_bytes == 0) continue;
      Place& place = scratch.emplace_back();
      place.begin = memory_.workspace_offset[i];
      place.end = place.begin + l.kernel.workspace_bytes;
      note(place, i);
      if (!in_arena(place)) {
        rank_.refuse(rank_.op(i), l.micro_batch,
                     fmt::format("memory: scratch lies at [{}, {}) in an arena of {} bytes",
                                 place.begin, place.end, memory_.arena_bytes));
      }
    }
    for (size_t v = 0; v < program_.values.size(); ++v) {
      if (program_.values[v].kind != ValueKind::input) continue;
      const auto id = static_cast<ValueId>(v);
      Place& place = values[at(id, 0)];
      place.before_step = place.after_step = true;
      place.begin = memory_.offset(id, 0);  // the host also writes unread inputs
      place.end = place.begin < 0 ? place.begin : place.begin + bytes_of_value(id, 0);
    }
    for (ValueId id : program_.outputs) {
      for (int mb = 0; mb < (merged(id) ? 1 : M_); ++mb) values[at(id, mb)].after_step = true;
    }
    std::erase_if(values, [](const Place& place) {
      return place.launch < 0 && (!place.before_step || place.begin < 0);
    });
    values.insert(values.end(), scratch.begin(), scratch.end());
    return values;
  }

  const RankView& rank_;
  const Program& program_;
  const MemoryPlan& memory_;
  const int M_;
  const std::vector<ValueId> owners_;  // [values]
  Extents batch_;                      // capacities of all micro-batches together
  std::vector<bool> is_output_;        // [values]
};

}  // namespace

void verify_memory(const RankView& rank) {
  MemoryCheck(rank).run();
}

}  // namespace braid
