#pragma once

#include <vector>

#include "braid/engine/step_planner.h"

namespace braid {

// A batch divided into micro-batches, between or inside sequences: the host's inputs of a step. A
// cut sequence is a sequence in each of its micro-batches; the later part sees the earlier part's
// keys.
class BatchCut : public StepInputs {
 public:
  // `batch` outlives the cut. Fails with kInvalidArgument, naming `strategy`, unless the ranges are
  // adjacent, not empty, and cover the batch's tokens.
  void assign(const Batch& batch, const Ranges& ranges, std::string_view strategy);

  // The same for ranges that are known to be right, and may be empty.
  void assign_parts(const Batch& batch, const Ranges& ranges);

  size_t size() const { return works_.size(); }
  const Work& work(size_t micro_batch) const { return works_[micro_batch]; }
  std::span<const Work> works() const { return {works_.begin(), works_.size()}; }
  // The first sequence continues from the micro-batch before.
  bool continues(size_t micro_batch) const { return continues_[micro_batch]; }

  // Writes the inputs of an executor with large enough capacities, alike on all ranks.
  void write(const Executor& executor) const;
  void write(const Executor& executor, int /*rank*/) const override { write(executor); }

 private:
  const Batch* batch_ = nullptr;
  InlineVector<Work, kMaxMicroBatches> works_;
  InlineVector<bool, kMaxMicroBatches> continues_;
  std::vector<int32_t> q_start_;  // [S' + 1] over all micro-batches
  std::vector<int32_t> kv_len_;   // [S']
  std::vector<size_t> sequence_;  // [S'] of the batch
};

}  // namespace braid
