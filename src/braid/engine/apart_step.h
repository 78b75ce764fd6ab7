#pragma once

#include <vector>

#include "braid/engine/kv_owners.h"
#include "braid/engine/step_planner.h"

namespace braid {

// A step of few tokens, of one or several sequences, whose keys stay on the ranks that hold them
// (parallel/attention/keys_apart.h): which rank computes which token, which rank takes the new
// keys, and what the host writes on each. A new key goes to the rank with most room.
class ApartStep : public StepInputs {
 public:
  // Gives the new keys their places in `owners`. `batch` outlives this; `windows` are those of the
  // model's attention. Costs time in proportion to the keys of the sequences.
  ApartStep(const Batch& batch, int64_t page_size, KvOwners& owners,
            const std::vector<int64_t>& windows);

  const SequenceLayout& tokens() const { return tokens_; }  // by even parts of the batch
  const Work& work() const { return work_; }
  // Keys of a sequence that a rank holds.
  int64_t held(int rank, size_t sequence) const;
  // Of these the ones that a token of the batch sees through a window.
  Range seen(int rank, size_t window, size_t token) const;

  void write(const Executor& executor, int rank) const override;

 private:
  // What a rank holds.
  struct Share {
    std::vector<std::vector<int32_t>> slots;  // [S][keys]
    std::vector<int32_t> begin;               // [W, T]
    std::vector<int32_t> end;                 // [T]
    std::vector<int32_t> new_slots;           // [T]
  };

  const Batch& batch_;
  Work work_;
  SequenceLayout tokens_;
  std::vector<int32_t> rows_;  // [T]
  std::vector<Share> shares_;  // [ranks]
};

}  // namespace braid
