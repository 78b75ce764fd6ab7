#pragma once

#include <span>
#include <vector>

#include "braid/parallel/attention/lower_attention.h"

namespace braid {

// A source's rows in the order of a reader's buffer.
struct PulledRows {
  int source = 0;
  bool thinned = false;
  int64_t src_row = 0;
  int64_t rows = 0;
  int64_t row = 0;  // in the buffer
};

// Rows of a part that another rank reads, in the order of the inbox of the part's rank.
struct ReadRows {
  size_t part = 0;
  int reader = 0;
  int64_t row = 0;  // in the inbox
  int64_t rows = 0;
};

// Where rows lie in a level attention: each part's first keys in its rank's thinned keys, and other
// ranks' keys in a reader's buffer. Pure.
class LevelRows {
 public:
  explicit LevelRows(const SequenceAttention& attention);

  // With the rank and the rows that hold them, whichever rank the levels place them on.
  const std::vector<PromptPart>& parts() const { return parts_; }
  const PromptPart& last() const;  // the last part with tokens
  int64_t cached(int rank) const { return cached_[rank]; }
  // The level at which two parts meet.
  size_t level(size_t a, size_t b) const;
  // Number of a part's keys that a later part reads.
  int64_t kept(size_t reader, size_t part) const;
  // A part's keys that the most demanding later part reads, on rank `reader` or on any rank.
  int64_t wanted(size_t part, int reader = -1) const;
  // A part's first row in its rank's thinned keys, and rows on the fullest rank.
  int64_t thinned_row(size_t part) const;
  int64_t thinned_rows() const;
  // A reader's buffer: from each other rank whole keys of earlier steps, then parts' first keys.
  std::vector<PulledRows> pulled(int reader) const;
  int64_t pulled_rows() const;  // of the fullest reader, at least 1
  // Where a rank's parts are read; values for each read row come back to the rank's inbox.
  std::vector<ReadRows> read(int rank) const;
  int64_t inbox_rows() const;  // of the fullest inbox, at least 1

 private:
  const SequenceAttention& a_;
  const int P_;
  const std::vector<PromptPart> placed_;  // with ranks of the levels' groups
  std::vector<PromptPart> parts_;
  std::vector<int64_t> cached_;  // [ranks] keys of earlier steps
};

// First row in a buffer for the rows at `src_row` in a source.
int64_t buffer_row(std::span<const PulledRows> buffer, int source, bool thinned, int64_t src_row);

}  // namespace braid
