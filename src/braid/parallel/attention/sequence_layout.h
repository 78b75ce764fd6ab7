#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "braid/program/sharding.h"

namespace braid {

// Consecutive positions in a sequence, in consecutive rows on a rank.
struct SequenceRun {
  int64_t position = 0;
  int64_t rows = 0;
  bool operator==(const SequenceRun&) const = default;
};

// The positions of a sequence on each rank, in row order. Every position is on a single rank; ranks
// may hold different numbers of rows, or none.
struct SequenceLayout {
  std::vector<std::vector<SequenceRun>> ranks;

  int64_t rows(int rank) const;
  int64_t max_rows() const;
  int64_t length() const;
  bool operator==(const SequenceLayout&) const = default;
};

// Rank r holds the lengths[r] positions after rank r - 1's; the sequence begins at `first`.
SequenceLayout contiguous_layout(const std::vector<int64_t>& lengths, int64_t first = 0);
// The same in even parts of L.
SequenceLayout even_layout(int64_t L, int P, int64_t first = 0);
// Of 2 P even parts, rank r holds part r and part 2 P - 1 - r: causal attention is balanced.
SequenceLayout zigzag_layout(int64_t L, int P, int64_t first = 0);
// As zigzag, with parts such that rank r holds as many rows as even_part(L, P, r) has.
SequenceLayout even_zigzag_layout(int64_t L, int P, int64_t first = 0);

// A sequence of consecutive parts, with rows divided as each part's placement says: a rank holds
// its rows of all parts, in part order. Nothing if a part is not divided by rows.
std::optional<SequenceLayout> joined_layout(std::span<const Placement> parts);

}  // namespace braid
