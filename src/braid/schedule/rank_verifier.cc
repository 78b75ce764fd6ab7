#include "braid/schedule/rank_verifier.h"

#include <algorithm>
#include <utility>

#include "braid/schedule/access_verifier.h"
#include "braid/schedule/group_verifier.h"
#include "braid/schedule/launch_waits.h"
#include "braid/schedule/memory_verifier.h"
#include "braid/schedule/partition.h"

namespace braid {
namespace {

// One rank's launches: ranges, waits and replacements.
class LaunchCheck {
 public:
  explicit LaunchCheck(const RankView& rank)
      : rank_(rank), program_(rank.program()), schedule_(rank.schedule()) {}

  void check_waits() const {
    for (int i = 0; i < rank_.launches(); ++i) {
      const Launch& l = launch(i);
      const bool in_range =
          0 <= l.op && l.num_ops >= 1 && l.op_end() <= static_cast<int>(program_.ops.size()) &&
          0 <= l.micro_batch && l.num_micro_batches >= 1 &&
          l.micro_batch_end() <= rank_.micro_batches() && (l.num_ops == 1 || l.replacement >= 0) &&
          l.replacement < static_cast<int>(schedule_.replacements.size()) &&
          std::ranges::all_of(l.joined, [&](const BatchOp& other) {
            return 0 <= other.op && other.op < static_cast<int>(program_.ops.size()) &&
                   0 <= other.micro_batch && other.micro_batch < rank_.micro_batches();
          });
      if (!in_range) {
        fail(ErrorCode::kInvalidArgument, "schedule '{}': launch {} names ops [{}, {}) of {}",
             schedule_.strategy, i, l.op, l.op_end(), program_.ops.size());
      }
      for (const Wait& wait : l.waits) {
        if (wait.launch < 0 || wait.launch >= i) {
          refuse(i, fmt::format("waits: launch {} waits for {}, which is not earlier", i,
                                wait.launch));
        }
      }
      check_phases(i);
    }
  }

  // Phases that waits begin are 1, 2, ... in order; partial waits come before a launch.
  void check_phases(int i) const {
    int phase = 0;
    for (const Wait& wait : launch(i).waits) {
      const bool follows = wait.phase == phase + 1 || (wait.phase == 0 && phase == 0);
      if (!follows || (wait.inside() && wait.partial())) {
        refuse(i, fmt::format("waits: launch {} waits for {} in phase {}, after phase {}", i,
                              wait.launch, wait.phase, phase));
      }
      phase = wait.phase;
    }
  }

  // The launches that a launch waits for inside bring all its phases and follow each other on a
  // single stream. A launch takes no later part of results than it waits for.
  void check_waits_inside() const {
    for (int i = 0; i < rank_.launches(); ++i) {
      const Wait* before = nullptr;  // the wait inside before this one
      int partial = -1;
      for (const Wait& wait : launch(i).waits) {
        if (wait.partial()) {
          const bool first = std::exchange(partial, wait.launch) < 0;
          const int taken = part_taken(program_, launch(i), launch(wait.launch));
          if (first && taken != kLastPart && taken <= wait.part) continue;
          refuse(i, fmt::format("result parts: launch {} begins beside {}, which has not made "
                                "what it takes",
                                i, rank_.name(wait.launch)));
        }
        if (!wait.inside()) continue;
        const Wait* const last = std::exchange(before, &wait);
        const bool follows =
            last == nullptr || (last->launch < wait.launch &&
                                launch(last->launch).stream == launch(wait.launch).stream);
        if (follows) continue;
        refuse(i, fmt::format("waits inside: {} and {}, which launch {} waits for while it runs, "
                              "do not follow each other on one stream",
                              rank_.name(last->launch), rank_.name(wait.launch), i));
      }
      if (before == nullptr) continue;
      if (op(i).def->phases == nullptr) {
        refuse(i,
               fmt::format("waits inside: launch {} waits for {} while it runs, and has one phase",
                           i, rank_.name(before->launch)));
      }
      if (last_phase(op(i)) > before->phase) {
        refuse(i, fmt::format("waits inside: launch {} has phase {} and waits for phases up to {}",
                              i, last_phase(op(i)), before->phase));
      }
      check_units(i);
    }
  }

  // A launch holds its units while it waits inside. Launches that must end before the awaited
  // launches end, and that may still run when this launch begins, must need no units.
  void check_units(int i) const {
    std::vector<int> left;
    std::vector<bool> seen(i, false);
    for (const Wait& wait : launch(i).waits) {
      if (wait.inside()) left.push_back(wait.launch);
    }
    while (!left.empty()) {
      const int needed = left.back();
      left.pop_back();
      if (seen[needed] || rank_.order().before(needed, i)) continue;
      seen[needed] = true;
      if (launch(needed).kernel.holds_units) {
        refuse(i, fmt::format("waits inside: launch {} may hold the units that {} needs, which has "
                              "to end before what launch {} waits for while it runs",
                              i, rank_.name(needed), i));
      }
      for (const Wait& wait : launch(needed).waits) left.push_back(wait.launch);
      for (int before = needed - 1; before >= 0; --before) {
        if (launch(before).stream != launch(needed).stream) continue;
        left.push_back(before);
        break;
      }
    }
  }

  // A fused op over ops of several micro-batches has the operands of each. No joined op meets other
  // ranks: another rank may wait for an op beside it.
  void check_joined() const {
    for (int i = 0; i < rank_.launches(); ++i) {
      const Launch& l = launch(i);
      if (l.joined.empty()) continue;
      if (l.num_ops > 1 || l.num_micro_batches > 1 || l.replacement < 0) {
        refuse(i, fmt::format("joined ops: launch {} joins more than an op of a micro-batch", i));
      }
      std::vector<ValueId> inputs, outputs;
      rank_.for_each_call(i, [&](const Op& one, int, int mb) {
        inputs.insert(inputs.end(), one.inputs.begin(), one.inputs.end());
        outputs.insert(outputs.end(), one.outputs.begin(), one.outputs.end());
        const RemoteUse remote = one.def->remote;
        if (!collective(one) && (remote == RemoteUse::none || remote == RemoteUse::pushes)) return;
        rank_.refuse(one, mb,
                     fmt::format("joined ops: launch {} joins an op that meets other ranks, pulls "
                                 "or stores",
                                 i));
      });
      if (op(i).inputs == inputs && op(i).outputs == outputs) continue;
      refuse(i,
             fmt::format("joined ops: launch {} has other operands than the ops that it joins", i));
    }
  }

  // A fused op makes the results of the ops it replaces.
  void check_replacements() const {
    for (int i = 0; i < rank_.launches(); ++i) {
      if (launch(i).replacement < 0 || !launch(i).joined.empty()) continue;
      for (ValueId id : op(i).outputs) {
        bool made = false;
        for (int o = launch(i).op; o < launch(i).op_end(); ++o) {
          made = made || std::ranges::count(program_.ops[o].outputs, id) > 0;
        }
        if (made) continue;
        rank_.refuse(
            program_.ops[launch(i).op], launch(i).micro_batch,
            fmt::format("every op once: launch {} makes %{}, which the ops that it replaces do "
                        "not",
                        i, id));
      }
    }
  }

  // A rank's part of the tokens belongs to a single micro-batch, to be even in each; expert rows
  // belong to a single micro-batch, sorted.
  void check_merged() const {
    for (int i = 0; i < rank_.launches(); ++i) {
      if (launch(i).num_micro_batches == 1) continue;
      bool token = false, shard = false, expert_row = false;
      for (const auto* ids : {&op(i).inputs, &op(i).outputs}) {
        for (ValueId id : *ids) {
          if (id == kNoValue) continue;
          token = token || program_.value(id).type.axis == BatchAxis::token;
          shard = shard || program_.value(id).type.axis == BatchAxis::shard;
          expert_row = expert_row || program_.value(id).type.axis == BatchAxis::expert_row;
        }
      }
      if (token && shard) {
        refuse(i,
               fmt::format("merged batches: launch {} divides tokens over ranks, whose parts are "
                           "each micro-batch's own",
                           i));
      }
      if (expert_row) {
        refuse(i, fmt::format("merged batches: launch {} has rows of experts, which are sorted in "
                              "each micro-batch by itself",
                              i));
      }
    }
  }

 private:
  const Launch& launch(int i) const { return rank_.launch(i); }
  const Op& op(int i) const { return rank_.op(i); }
  [[noreturn]] void refuse(int i, std::string_view rule) const {
    rank_.refuse(op(i), launch(i).micro_batch, rule);
  }

  const RankView& rank_;
  const Program& program_;
  const Schedule& schedule_;
};

}  // namespace

void verify_rank(RankView& rank) {
  const LaunchCheck check(rank);
  check.check_waits();
  rank.find_order();
  rank.find_launches();
  check.check_joined();
  check.check_replacements();
  check.check_waits_inside();
  verify_groups(rank);
  verify_accesses(rank);
  check.check_merged();
  verify_memory(rank);
}

}  // namespace braid
