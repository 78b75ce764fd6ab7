#include "braid/schedule/rank_view.h"

namespace braid {

RankView::RankView(const Program& program, const Schedule& schedule, int rank, int ranks)
    : program_(program), schedule_(schedule), rank_(rank), ranks_(ranks) {
  const size_t M = schedule.micro_batches.size();
  BRAID_CHECK(M > 0 && schedule.memory.micro_batches == static_cast<int>(M) &&
                  schedule.memory.value_offset.size() == program.values.size() * M &&
                  schedule.memory.merged.size() == program.values.size() &&
                  schedule.memory.workspace_offset.size() == schedule.launches.size(),
              "schedule '{}' has no memory plan of its own", schedule.strategy);
}

void RankView::find_launches() {
  launch_of_.assign(program_.ops.size() * schedule_.micro_batches.size(), -1);
  for (int i = 0; i < launches(); ++i) {
    launch(i).for_each_op([&](int o, int mb) {
      int& known = launch_of_[at(o, mb)];
      if (known >= 0) {
        refuse(program_.ops[o], mb,
               fmt::format("every op once: launches {} and {} run it", known, i));
      }
      known = i;
    });
  }
  for (size_t o = 0; o < program_.ops.size(); ++o) {
    for (int mb = 0; mb < micro_batches(); ++mb) {
      if (launch_of(static_cast<int>(o), mb) < 0) {
        refuse(program_.ops[o], mb, "every op once: no launch runs it");
      }
    }
  }
}

std::string RankView::name(int i) const {
  return fmt::format("launch {} ({} at '{}')", i, op(i).def->kind, op(i).scope);
}

void RankView::refuse(const Op& what, int micro_batch, std::string_view rule) const {
  fail(ErrorCode::kInvalidArgument, "schedule '{}': {} at '{}', micro-batch {}: {}",
       schedule_.strategy, what.def->kind, what.scope, micro_batch, rule);
}

}  // namespace braid
