#pragma once

#include <vector>

#include "braid/engine/held_keys.h"
#include "braid/engine/step_planner.h"

namespace braid {

// A step in which ranks have sequences of their own beside shares of divided ones (KeysApart with
// own rows). A sequence with a group (Batch::add) is that rank's own while the rank holds all its
// keys and has room for the new ones. Tokens of all other sequences are guests, dealt to the ranks
// in even parts. A rank's rows are its guests, then own tokens.
class LocalStep : public StepInputs {
 public:
  // The rank of each own sequence, -1 for divided ones. `owners` hold no key of the batch's tokens.
  static std::vector<int> homes(const Batch& batch, const KvOwners& owners, HeldKeys& keys);

  // Places the new keys in `owners`: own keys at home, guests' on ranks with most room. `homes`
  // name a rank at least once. `batch` must outlive this object; `windows` are the windows of the
  // model's attention.
  LocalStep(const Batch& batch, const std::vector<int>& homes, KvOwners& owners, HeldKeys& keys,
            const std::vector<int64_t>& windows);

  const ContextKey& key() const { return key_; }
  const Work& work() const { return work_; }
  // Rows with tokens on a rank, with those of absent guests before own tokens.
  std::optional<int64_t> rows_of(int rank) const override { return shares_.at(rank).rows; }
  // Keys on a rank that a token of the batch sees.
  Range seen(int rank, size_t window, size_t token) const;

  void write(const Executor& executor, int rank) const override;

 private:
  // Inputs about T queries, as HeldInputs has them.
  struct Held {
    std::vector<int32_t> begin;  // [W, T]
    std::vector<int32_t> end;    // [T]
    std::vector<int32_t> slots;  // [T]
    void resize(size_t queries, size_t windows);
  };
  // A rank's inputs.
  struct Share {
    std::vector<int32_t> keys;  // slots in the rank's cache, sequence after sequence
    Held held;                  // T: guests' rows of all ranks, then this rank's own rows
    int64_t rows = 0;
  };
  struct Place {
    int rank = 0;
    int64_t row = 0;   // on the rank
    int64_t held = 0;  // in Share::held
    bool guest = false;
  };

  void place_tokens(const std::vector<int>& homes);
  void add_own(size_t sequence, int64_t first_token, int home, HeldKeys& keys);
  void add_guests(size_t sequence, int64_t first_token, const KvOwners& owners, HeldKeys& keys);

  const Batch& batch_;
  const std::vector<int64_t> windows_;
  Work work_;
  ContextKey key_;
  int64_t guests_ = 0;         // rows of guests in Share::held
  std::vector<Place> places_;  // [T]
  std::vector<Share> shares_;  // [ranks]
};

}  // namespace braid
