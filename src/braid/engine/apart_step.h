#pragma once

#include <vector>

#include "braid/engine/held_keys.h"
#include "braid/engine/step_planner.h"

namespace braid {

// A step of few tokens with keys apart (parallel/attention/keys_apart.h): the ranks of the tokens,
// the ranks of the new keys, and the host's inputs for each rank. Sequences' keys stay on their
// ranks; a new key goes to the rank with most room.
class ApartStep : public StepInputs {
 public:
  // Places the new keys in `owners`. `batch` and the lists of `keys` must outlive this object;
  // `windows` are the windows of the model's attention.
  ApartStep(const Batch& batch, KvOwners& owners, HeldKeys& keys,
            const std::vector<int64_t>& windows);

  const SequenceLayout& tokens() const { return tokens_; }  // by even parts of the batch
  const Work& work() const { return work_; }
  // Number of a sequence's keys on a rank.
  int64_t held(int rank, size_t sequence) const;
  // The range of held keys within a token's window.
  Range seen(int rank, size_t window, size_t token) const;

  void write(const Executor& executor, int rank) const override;

 private:
  // A rank's inputs.
  struct Share {
    std::vector<int32_t> begin;      // [W, T]
    std::vector<int32_t> end;        // [T]
    std::vector<int32_t> new_slots;  // [T]
  };

  const Batch& batch_;
  Work work_;
  SequenceLayout tokens_;
  std::vector<const HeldKeys::Sequence*> sequences_;  // [S]
  std::vector<int32_t> rows_;                         // [T]
  std::vector<Share> shares_;                         // [ranks]
};

}  // namespace braid
