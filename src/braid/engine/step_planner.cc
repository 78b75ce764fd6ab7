#include "braid/engine/step_planner.h"

#include "braid/base/math.h"

namespace braid {

std::span<const Work> PlannedStep::works_of(int rank) const {
  const size_t each = works.size() / static_cast<size_t>(groups);
  const int ranks = bound->ranks() / groups;
  return works.subspan(static_cast<size_t>(rank / ranks) * each, each);
}

InlineVector<Extents, kMaxMicroBatches> PlannedStep::counts_of(int rank) const {
  InlineVector<Extents, kMaxMicroBatches> counts;
  const int ranks = bound->ranks() / groups;
  for (const Work& work : works_of(rank)) {
    Extents n = work.extents;
    n.shard = inputs->rows_of(rank).value_or(even_part(n.token, ranks, rank % ranks).size());
    counts.push_back(n);
  }
  return counts;
}

std::optional<size_t> StepPlanner::size_for(std::span<const StepSize> sizes,
                                            const Batch& batch) const {
  if (!has_size(batch)) return {};
  const Extents& n = batch.extents();
  const bool decode = n.token == n.sequence && n.row == n.token;
  return smallest_that_holds(sizes, n.token, n.sequence, n.row, decode);
}

}  // namespace braid
