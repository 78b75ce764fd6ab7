#include "braid/schedule/rank_verifier.h"

#include <algorithm>

#include "braid/schedule/access_verifier.h"
#include "braid/schedule/late_inputs.h"
#include "braid/schedule/memory_verifier.h"

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
          l.replacement < static_cast<int>(schedule_.replacements.size());
      if (!in_range) {
        fail(ErrorCode::kInvalidArgument, "schedule '{}': launch {} names ops [{}, {}) of {}",
             schedule_.strategy, i, l.op, l.op_end(), program_.ops.size());
      }
      for (const auto* awaited : {&l.waits, &l.late}) {
        for (int wait : *awaited) {
          if (0 <= wait && wait < i) continue;
          refuse(i, fmt::format("waits: launch {} waits for {}, which is not earlier", i, wait));
        }
      }
      if (l.early >= i || l.early < -1) {
        refuse(i, fmt::format("waits: launch {} takes of {}, which is not earlier", i, l.early));
      }
    }
  }

  // The launches that a launch waits for while it runs follow each other on one stream, and need
  // nothing that the waiting launch may hold. A launch takes early only what is made early.
  void check_late() const {
    for (int i = 0; i < rank_.launches(); ++i) {
      const std::vector<int>& late = launch(i).late;
      const auto stages = std::ssize(late);
      if (stages > 0 && last_stage(op(i)) > stages) {
        refuse(i, fmt::format("late inputs: launch {} waits for {} stages and is told of {}", i,
                              last_stage(op(i)), stages));
      }
      for (size_t s = 1; s < late.size(); ++s) {
        if (late[s - 1] < late[s] && launch(late[s - 1]).stream == launch(late[s]).stream) continue;
        refuse(i, fmt::format("late inputs: {} and {}, which launch {} waits for while it runs, do "
                              "not follow each other on one stream",
                              rank_.name(late[s - 1]), rank_.name(late[s]), i));
      }
      const int early = launch(i).early;
      if (early >= 0 && !takes_early(program_, launch(i), launch(early))) {
        refuse(i, fmt::format("early results: launch {} begins beside {}, which has not made what "
                              "it takes",
                              i, rank_.name(early)));
      }
      for (int before : before_late(program_, schedule_.launches, late)) {
        if (rank_.order().before(before, i)) continue;
        refuse(i, fmt::format("late inputs: launch {} may hold what {} needs, which comes before "
                              "what it waits for while it runs",
                              i, rank_.name(before)));
      }
    }
  }

  // What a fused op makes is what the ops that it replaces make.
  void check_replacements() const {
    for (int i = 0; i < rank_.launches(); ++i) {
      if (launch(i).replacement < 0) continue;
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

  // A rank's part of the tokens is a part of one micro-batch's, so that it is even in each; rows of
  // experts are one micro-batch's, sorted.
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
  check.check_replacements();
  check.check_late();
  verify_accesses(rank);
  check.check_merged();
  verify_memory(rank);
}

}  // namespace braid
