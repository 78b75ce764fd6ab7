#pragma once

#include <deque>
#include <vector>

#include "braid/engine/batch_cut.h"
#include "braid/engine/context_key.h"

namespace braid {

// A batch with sequences dealt to groups of ranks, each with its own KV cache: the host's inputs of
// a step. A sequence stays with the group that has its keys. A group without tokens takes part with
// extents of 0.
class BatchDeal : public StepInputs {
 public:
  // `pages` of each group's cache, under the same numbers; `tp` ranks in each group.
  BatchDeal(int groups, int tp, int64_t pages, int64_t page_size);

  // Deals the batch, which outlives this object. A sequence goes to its named group (Batch::add),
  // else to the group with its keys, else to the group with the fewest tokens so far.
  void assign(const Batch& batch);
  // The group with most tokens.
  const Batch& busiest() const { return batches_[busiest_]; }

  // Divides every group's batch into as many micro-batches as `ranges` divide the busiest, in the
  // same proportions. Fails as BatchCut::assign does.
  void cut(const Ranges& ranges, std::string_view strategy);

  // Capacities that fit each group. Rows count over all groups.
  ContextKey key(int strategy) const;
  // Each group's work per micro-batch, [groups, micro-batches].
  std::span<const Work> works() const { return works_; }
  int groups() const { return static_cast<int>(batches_.size()); }

  // Row r of the step's logits is row order[r] of the batch's; empty: equal order.
  std::span<const int32_t> row_order() const override { return row_order_; }
  void write(const Executor& executor, int rank) const override;

 private:
  // The sequence's named group, or the group with its keys; -1: any.
  int fixed_group(const Batch& batch, size_t sequence) const;
  std::vector<int> deal_groups(const Batch& batch) const;  // [sequences]
  void order_rows();

  const int tp_;
  const int64_t page_size_;
  std::vector<int16_t> owner_;  // [pages] the last group that wrote the page; -1: none
  std::vector<Batch> batches_;  // [groups]
  std::deque<BatchCut> cuts_;   // [groups]
  size_t busiest_ = 0;
  std::vector<std::pair<int, int32_t>> rows_;  // [R] group, and token in the group's batch
  std::vector<int32_t> row_order_;             // [R] or empty
  std::vector<Work> works_;
};

}  // namespace braid
