#pragma once

#include <string>
#include <utility>

#include "braid/fabric/local/local_segment.h"

namespace braid::fabric {

// An allocation's parts on this process' ranks.
class UcxSegment final : public Segment {
 public:
  UcxSegment(int first_rank, int ranks, int64_t index, std::string name, int64_t bytes)
      : Segment(name, bytes),
        first_rank_(first_rank),
        ranks_(ranks),
        index_(index),
        parts_(LinkModel{}, ranks, std::move(name), bytes) {}

  int64_t index() const { return index_; }  // in the order of the world's allocations
  std::byte* part(int rank) const { return parts_.part(rank - first_rank_); }
  std::byte* map(int /*from*/, int of) const override {
    return of >= first_rank_ && of < first_rank_ + ranks_ ? part(of) : nullptr;
  }

 private:
  const int first_rank_, ranks_;
  const int64_t index_;
  const LocalSegment parts_;
};

}  // namespace braid::fabric
