#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "braid/parallel/attention/keys_apart.h"
#include "braid/parallel/attention/lower_attention.h"
#include "braid/parallel/placed_programs.h"

namespace braid {

// Lowers a Program's attention ops over divided rows, in program order, on every rank (lowering.h).
class AttentionLowering {
 public:
  // All arguments outlive this.
  AttentionLowering(const Program& logical, const LayoutPlan& plan,
                    const AttentionDivision& division, PlacedPrograms& made)
      : logical_(logical), plan_(plan), division_(division), made_(made) {}

  // Lowers the op at `index`. False: the op is no attention over divided rows, and nothing is
  // changed.
  bool lower(const Op& op, int index);

 private:
  // Over divided tokens, of which each rank keeps a part of the keys.
  void lower_kept(const Op& op, int index);
  // With queries that go to the keys.
  void lower_apart(const Op& op, int index);
  // Dense: each rank's rows of all divided parts become a single value. Parts before these, whole
  // on every rank, are the joint prefix.
  void lower_rows(const Op& op, int index);
  static std::span<const ValueId> queries_of(const Op& op);
  // How many parts at the front are whole on every rank; logical rows of parts.
  size_t whole_parts(std::span<const ValueId> parts) const;
  int64_t rows_of(std::span<const ValueId> parts) const;
  // Layout of these parts' rows, part after part, from position `first` on.
  SequenceLayout layout_of(const Op& op, std::span<const ValueId> parts, int64_t first) const;

  const Program& logical_;
  const LayoutPlan& plan_;
  const AttentionDivision& division_;
  PlacedPrograms& made_;
  ValueId kv_slots_ = kNoValue;
  ValueId scores_ = kNoValue;  // keys' scores, by the attention before
  KeysApartInputs apart_;
  std::vector<KeysApartBuffers> apart_open_;                 // for the next attentions
  std::map<ValueId, std::pair<ValueId, ValueId>> appended_;  // k and v, by the cache of the keys
};

}  // namespace braid
