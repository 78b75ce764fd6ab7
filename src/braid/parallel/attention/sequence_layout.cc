#include "braid/parallel/attention/sequence_layout.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid {

int64_t SequenceLayout::rows(int rank) const {
  int64_t rows = 0;
  for (const SequenceRun& run : ranks.at(rank)) rows += run.rows;
  return rows;
}

int64_t SequenceLayout::max_rows() const {
  int64_t most = 0;
  for (int r = 0; r < static_cast<int>(ranks.size()); ++r) most = std::max(most, rows(r));
  return most;
}

int64_t SequenceLayout::length() const {
  int64_t length = 0;
  for (int r = 0; r < static_cast<int>(ranks.size()); ++r) length += rows(r);
  return length;
}

SequenceLayout contiguous_layout(const std::vector<int64_t>& lengths, int64_t first) {
  SequenceLayout layout;
  for (int64_t rows : lengths) {
    if (rows < 0) fail(ErrorCode::kInvalidArgument, "a sequence part of {} rows", rows);
    layout.ranks.emplace_back();
    if (rows > 0) layout.ranks.back().push_back({first, rows});
    first += rows;
  }
  return layout;
}

SequenceLayout even_layout(int64_t L, int P, int64_t first) {
  std::vector<int64_t> lengths;
  for (int r = 0; r < P; ++r) lengths.push_back(even_part(L, P, r).size());
  return contiguous_layout(lengths, first);
}

SequenceLayout zigzag_layout(int64_t L, int P, int64_t first) {
  SequenceLayout layout;
  for (int r = 0; r < P; ++r) {
    layout.ranks.emplace_back();
    for (int part : {r, 2 * P - 1 - r}) {
      const Range rows = even_part(L, 2 * P, part);
      if (!rows.empty()) layout.ranks.back().push_back({first + rows.begin, rows.size()});
    }
  }
  return layout;
}

SequenceLayout even_zigzag_layout(int64_t L, int P, int64_t first) {
  SequenceLayout layout;
  layout.ranks.resize(P);
  const auto place = [&](int r, int64_t rows) {
    auto& runs = layout.ranks[r];
    if (!runs.empty() && runs.back().position + runs.back().rows == first) {
      runs.back().rows += rows;
    } else if (rows > 0) {
      runs.push_back({first, rows});
    }
    first += rows;
  };
  for (int r = 0; r < P; ++r) place(r, ceil_div(even_part(L, P, r).size(), 2));
  for (int r = P - 1; r >= 0; --r) place(r, even_part(L, P, r).size() / 2);
  return layout;
}

std::optional<SequenceLayout> joined_layout(std::span<const Placement> parts) {
  SequenceLayout layout;
  int64_t begin = 0, rows_end = 0;
  for (const Placement& part : parts) {
    if (!part.is_shard(0)) return std::nullopt;
    layout.ranks.resize(part.parts.size());
    for (size_t r = 0; r < part.parts.size(); ++r) {
      const Range& own = part.parts[r];
      auto& runs = layout.ranks[r];
      if (own.empty()) continue;
      if (!runs.empty() && runs.back().position + runs.back().rows == begin + own.begin) {
        runs.back().rows += own.size();
      } else {
        runs.push_back({begin + own.begin, own.size()});
      }
    }
    for (const Range& own : part.parts) rows_end = std::max(rows_end, begin + own.end);
    begin = rows_end;
  }
  return layout;
}

}  // namespace braid
