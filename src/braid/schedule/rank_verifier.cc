#include "braid/schedule/rank_verifier.h"

#include <algorithm>

#include "braid/schedule/dependencies.h"
#include "braid/schedule/late_inputs.h"
#include "braid/schedule/launch_order.h"

namespace braid {
namespace {

// Bytes that a value or a launch's scratch has in the arena, and who touches them.
struct Place {
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<int> launches;  // in recorded order
  bool before_step = false;   // written by the host before the step
  bool after_step = false;    // kept to its end
};

// One rank's Schedule by itself.
class RankCheck {
 public:
  RankCheck(const Program& program, const Schedule& schedule, int ranks)
      : program_(program), schedule_(schedule), ranks_(ranks) {
    M_ = static_cast<int>(schedule.micro_batches.size());
    BRAID_CHECK(M_ > 0 && schedule.memory.micro_batches == M_ &&
                    schedule.memory.value_offset.size() ==
                        program.values.size() * schedule.micro_batches.size() &&
                    schedule.memory.merged.size() == program.values.size() &&
                    schedule.memory.workspace_offset.size() == schedule.launches.size(),
                "schedule '{}' has no memory plan of its own", schedule.strategy);
    for (int mb = 0; mb < M_; ++mb) batch_ += capacity(mb);
  }

  void run() {
    check_waits();
    order_ = LaunchOrder(schedule_.launches);
    check_every_op_once();
    check_replacements();
    check_late();
    check_inputs_are_made();
    check_states();
    check_merged();
    check_memory();
  }

 private:
  const Launch& launch(int i) const { return schedule_.launches[static_cast<size_t>(i)]; }
  const Op& op(int i) const { return schedule_.op(program_, launch(i)); }
  int launches() const { return static_cast<int>(schedule_.launches.size()); }
  size_t at(int index, int mb) const {
    return (static_cast<size_t>(index) * static_cast<size_t>(M_)) + static_cast<size_t>(mb);
  }

  [[noreturn]] void refuse(const Op& what, int micro_batch, std::string_view rule) const {
    fail(ErrorCode::kInvalidArgument, "schedule '{}': {} at '{}', micro-batch {}: {}",
         schedule_.strategy, what.def->kind, what.scope, micro_batch, rule);
  }

  // a ends before b begins, or they are one launch, which runs its parts in program order.
  bool ordered(int a, int b) const { return a == b || order_.before(a, b); }

  void check_waits() const {
    for (int i = 0; i < launches(); ++i) {
      const Launch& l = launch(i);
      const bool in_range = 0 <= l.op && l.num_ops >= 1 &&
                            l.op_end() <= static_cast<int>(program_.ops.size()) &&
                            0 <= l.micro_batch && l.num_micro_batches >= 1 &&
                            l.micro_batch_end() <= M_ && (l.num_ops == 1 || l.replacement >= 0) &&
                            l.replacement < static_cast<int>(schedule_.replacements.size());
      if (!in_range) {
        fail(ErrorCode::kInvalidArgument, "schedule '{}': launch {} names ops [{}, {}) of {}",
             schedule_.strategy, i, l.op, l.op_end(), program_.ops.size());
      }
      for (const auto* awaited : {&l.waits, &l.late}) {
        for (int wait : *awaited) {
          if (0 <= wait && wait < i) continue;
          refuse(op(i), l.micro_batch,
                 fmt::format("waits: launch {} waits for {}, which is not earlier", i, wait));
        }
      }
      if (l.early >= i || l.early < -1) {
        refuse(op(i), l.micro_batch,
               fmt::format("waits: launch {} takes of {}, which is not earlier", i, l.early));
      }
    }
  }

  void check_every_op_once() {
    launch_of_.assign(program_.ops.size() * static_cast<size_t>(M_), -1);
    for (int i = 0; i < launches(); ++i) {
      for (int o = launch(i).op; o < launch(i).op_end(); ++o) {
        for (int mb = launch(i).micro_batch; mb < launch(i).micro_batch_end(); ++mb) {
          int& known = launch_of_[at(o, mb)];
          if (known >= 0) {
            refuse(program_.ops[static_cast<size_t>(o)], mb,
                   fmt::format("every op once: launches {} and {} run it", known, i));
          }
          known = i;
        }
      }
    }
    for (size_t o = 0; o < program_.ops.size(); ++o) {
      for (int mb = 0; mb < M_; ++mb) {
        if (launch_of_[at(static_cast<int>(o), mb)] < 0) {
          refuse(program_.ops[o], mb, "every op once: no launch runs it");
        }
      }
    }
  }

  // What a launch waits for while it runs can run by then, and what it takes early is there.
  void check_late() const {
    for (int i = 0; i < launches(); ++i) {
      if (const auto stages = std::ssize(launch(i).late);
          stages > 0 && last_stage(op(i)) > stages) {
        refuse(op(i), launch(i).micro_batch,
               fmt::format("late inputs: launch {} waits for {} stages and is told of {}", i,
                           last_stage(op(i)), stages));
      }
      const int early = launch(i).early;
      if (early >= 0 && !takes_early(program_, launch(i), launch(early))) {
        refuse(op(i), launch(i).micro_batch,
               fmt::format("early results: launch {} begins beside launch {} ({}), which has not "
                           "made what it takes",
                           i, early, op(early).def->kind));
      }
      for (int before : before_late(program_, schedule_.launches, launch(i).late)) {
        if (order_.before(before, i)) continue;
        refuse(op(i), launch(i).micro_batch,
               fmt::format("late inputs: launch {} may hold what launch {} ({}) needs, which comes "
                           "before what it waits for while it runs",
                           i, before, op(before).def->kind));
      }
    }
  }

  // What a fused op makes is what the ops that it replaces make.
  void check_replacements() const {
    for (int i = 0; i < launches(); ++i) {
      if (launch(i).replacement < 0) continue;
      for (ValueId id : op(i).outputs) {
        bool made = false;
        for (int o = launch(i).op; o < launch(i).op_end(); ++o) {
          made = made || std::ranges::count(program_.ops[static_cast<size_t>(o)].outputs, id) > 0;
        }
        if (made) continue;
        refuse(program_.ops[static_cast<size_t>(launch(i).op)], launch(i).micro_batch,
               fmt::format("every op once: launch {} makes %{}, which the ops that it replaces do "
                           "not",
                           i, id));
      }
    }
  }

  void check_inputs_are_made() const {
    std::vector<int> maker(program_.values.size() * static_cast<size_t>(M_), -1);
    for (int i = 0; i < launches(); ++i) {
      for (ValueId id : op(i).outputs) {
        for (int mb = launch(i).micro_batch; mb < launch(i).micro_batch_end(); ++mb) {
          int& made = maker[at(id, mb)];
          if (made >= 0) {
            refuse(op(i), mb,
                   fmt::format("every op once: launches {} and {} make %{}", made, i, id));
          }
          made = i;
        }
      }
    }
    const auto check = [&](ValueId id, int mb, int reader) {
      const int made = maker[at(id, mb)];
      const Op& who = op(reader);
      if (made < 0) {
        refuse(who, mb, fmt::format("inputs are made: %{}, which it reads, is made nowhere", id));
      }
      if (made == reader || order_.before(made, reader)) return;
      refuse(who, mb,
             fmt::format("inputs are made: launch {} reads %{} and launch {} ({}) that makes it "
                         "need not have ended",
                         reader, id, made, op(made).def->kind));
    };
    for (int i = 0; i < launches(); ++i) {
      for (ValueId id : op(i).inputs) {
        if (id == kNoValue || program_.value(id).kind != ValueKind::computed) continue;
        for (int mb = launch(i).micro_batch; mb < launch(i).micro_batch_end(); ++mb) {
          check(id, mb, i);
        }
      }
    }
    for (ValueId id : program_.outputs) {
      for (int mb = 0; mb < M_; ++mb) {
        if (program_.value(id).kind == ValueKind::computed && maker[at(id, mb)] < 0) {
          refuse(program_.ops.back(), mb, fmt::format("inputs are made: output %{} is not", id));
        }
      }
    }
  }

  void check_states() const {
    const Dependencies needs = dependencies_of(program_);
    const auto touches_state = [&](const Op& who, const Op& other) {
      return std::ranges::any_of(who.inputs, [&](ValueId id) {
        return id != kNoValue && program_.value(id).kind == ValueKind::state &&
               std::ranges::count(other.inputs, id) > 0;
      });
    };
    for (size_t o = 0; o < program_.ops.size(); ++o) {
      const Op& who = program_.ops[o];
      for (int mb = 0; mb < M_; ++mb) {
        const int self = launch_of_[at(static_cast<int>(o), mb)];
        const auto check = [&](int need, int from) {
          const Op& other = program_.ops[static_cast<size_t>(need)];
          if (!touches_state(who, other) || ordered(launch_of_[at(need, from)], self)) return;
          refuse(who, mb,
                 fmt::format("states in order: {} of micro-batch {} need not have ended",
                             other.def->kind, from));
        };
        for (int need : needs.same[o]) check(need, mb);
        for (int from = mb; from > 0 && continues(from);) {
          --from;
          for (int need : needs.continued[o]) check(need, from);
        }
      }
    }
  }

  bool continues(int mb) const {
    return schedule_.micro_batches[static_cast<size_t>(mb)].continues;
  }

  // With the largest part of its tokens that a rank can have.
  Extents capacity(int mb) const {
    return sharded(schedule_.micro_batches[static_cast<size_t>(mb)].capacity, ranks_);
  }

  int64_t bytes_of_value(ValueId id, int mb) const {
    const bool merged = schedule_.memory.merged[static_cast<size_t>(id)];
    return bytes_of(program_.type_of(id, merged ? program_.capacity : capacity(mb)));
  }

  std::string describe(const Place& place) const {
    if (place.launches.empty()) return "an input of the host's";
    const Op& who = op(place.launches.front());
    return fmt::format("{} at '{}', micro-batch {}", who.def->kind, who.scope,
                       launch(place.launches.front()).micro_batch);
  }

  std::vector<Place> places() const {
    const MemoryPlan& memory = schedule_.memory;
    std::vector<Place> values(program_.values.size() * static_cast<size_t>(M_));
    std::vector<Place> scratch;
    const auto use = [&](ValueId id, int mb, int i) {
      const ValueKind kind = program_.value(id).kind;
      if (kind == ValueKind::weight || kind == ValueKind::state) return;
      const bool merged = memory.merged[static_cast<size_t>(id)];
      Place& place = values[at(id, merged ? 0 : mb)];
      place.begin = memory.offset(id, mb);
      place.end = place.begin + bytes_of_value(id, mb);
      if (!in_arena(place)) {
        refuse(op(i), mb,
               fmt::format("memory: %{} lies at [{}, {}) in an arena of {} bytes", id, place.begin,
                           place.end, memory.arena_bytes));
      }
      const ValueType& type = program_.value(id).type;
      if (merged && batch_.of(type.axis, 0) > type.shape[0]) {
        refuse(op(i), mb,
               fmt::format("memory: %{} has {} rows for {} of all micro-batches", id, type.shape[0],
                           batch_.of(type.axis, 0)));
      }
      if (merged && memory.offset(id, mb) != memory.offset(id, 0)) {
        refuse(op(i), mb, fmt::format("memory: %{} is merged and has two places", id));
      }
      if (launch(i).num_micro_batches > 1 && !merged) {
        refuse(op(i), mb, fmt::format("memory: a merged launch uses %{}, which is not", id));
      }
      const bool shared = kind == ValueKind::input || std::ranges::count(program_.outputs, id) > 0;
      if (shared && !merged) {
        refuse(op(i), mb, fmt::format("memory: %{} is the host's and is not merged", id));
      }
      if (place.launches.empty() || place.launches.back() != i) place.launches.push_back(i);
    };
    for (int i = 0; i < launches(); ++i) {
      const Launch& l = launch(i);
      for (int mb = l.micro_batch; mb < l.micro_batch_end(); ++mb) {
        for (ValueId id : op(i).inputs) {
          if (id != kNoValue) use(id, mb, i);
        }
        for (ValueId id : op(i).outputs) {
          use(id, mb, i);
          const bool one = memory.merged[static_cast<size_t>(id)] &&
                           program_.value(id).type.axis == BatchAxis::none;
          if (one && l.num_micro_batches < M_) {
            refuse(op(i), mb,
                   fmt::format("memory: %{} has no rows that each micro-batch could "
                               "write",
                               id));
          }
        }
      }
      const int64_t at = memory.workspace_offset[static_cast<size_t>(i)];
      if (l.kernel.workspace_bytes == 0) continue;
      scratch.push_back({.begin = at, .end = at + l.kernel.workspace_bytes, .launches = {i}});
      if (!in_arena(scratch.back())) {
        refuse(op(i), l.micro_batch,
               fmt::format("memory: scratch lies at [{}, {}) in an arena of {} bytes", at,
                           scratch.back().end, memory.arena_bytes));
      }
    }
    for (size_t v = 0; v < program_.values.size(); ++v) {
      if (program_.values[v].kind != ValueKind::input) continue;
      const auto id = static_cast<ValueId>(v);
      Place& place = values[at(id, 0)];
      place.before_step = place.after_step = true;
      place.begin = memory.offset(id, 0);  // the host writes also what no op reads
      place.end = place.begin < 0 ? place.begin : place.begin + bytes_of_value(id, 0);
    }
    for (ValueId id : program_.outputs) values[at(id, 0)].after_step = true;
    std::erase_if(values, [](const Place& place) {
      return place.launches.empty() && (!place.before_step || place.begin < 0);
    });
    values.insert(values.end(), scratch.begin(), scratch.end());
    return values;
  }

  bool in_arena(const Place& place) const {
    return place.begin >= 0 && place.begin % MemoryPlan::kAlignment == 0 &&
           place.end <= schedule_.memory.arena_bytes;
  }

  // A rank's part of the tokens is a part of one micro-batch's, so that it is even in each.
  void check_merged() const {
    for (int i = 0; i < launches(); ++i) {
      if (launch(i).num_micro_batches == 1) continue;
      bool token = false, shard = false;
      for (const auto* ids : {&op(i).inputs, &op(i).outputs}) {
        for (ValueId id : *ids) {
          if (id == kNoValue) continue;
          token = token || program_.value(id).type.axis == BatchAxis::token;
          shard = shard || program_.value(id).type.axis == BatchAxis::shard;
        }
      }
      if (token && shard) {
        refuse(op(i), launch(i).micro_batch,
               fmt::format("merged batches: launch {} divides tokens over ranks, whose parts are "
                           "each micro-batch's own",
                           i));
      }
    }
  }

  void check_memory() const {
    std::vector<Place> all = places();
    std::ranges::sort(all, {}, &Place::begin);
    for (size_t i = 0; i < all.size(); ++i) {
      for (size_t j = i + 1; j < all.size() && all[j].begin < all[i].end; ++j) {
        if (done_before(all[i], all[j]) || done_before(all[j], all[i])) continue;
        fail(ErrorCode::kInvalidArgument,
             "schedule '{}': {}: memory: bytes [{}, {}) are shared with {} and neither is done "
             "with before the other begins",
             schedule_.strategy, describe(all[i]), all[j].begin, std::min(all[i].end, all[j].end),
             describe(all[j]));
      }
    }
  }

  // The last accesses of a on every stream end before the first ones of b on every stream begin.
  bool done_before(const Place& a, const Place& b) const {
    if (a.after_step || b.before_step) return false;
    std::array<int, kNumStreams> last{-1, -1, -1}, first{-1, -1, -1};
    for (int i : a.launches) last[static_cast<size_t>(order_.stream(i))] = i;
    for (auto it = b.launches.rbegin(); it != b.launches.rend(); ++it) {
      first[static_cast<size_t>(order_.stream(*it))] = *it;
    }
    for (int x : last) {
      for (int y : first) {
        if (x >= 0 && y >= 0 && !order_.before(x, y)) return false;
      }
    }
    return true;
  }

  const Program& program_;
  const Schedule& schedule_;
  const int ranks_;
  int M_ = 1;
  Extents batch_;  // capacities of all micro-batches together
  LaunchOrder order_;
  std::vector<int> launch_of_;  // [ops, micro-batches]
};

}  // namespace

void verify_rank(const Program& program, const Schedule& schedule, int ranks) {
  RankCheck(program, schedule, ranks).run();
}

}  // namespace braid
