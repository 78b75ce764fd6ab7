#include "braid/parallel/attention/level_rows.h"

#include <algorithm>

namespace braid {
namespace {

// The most rows that a rank's buffer needs: rows_of(rank) gives its parts in order. At least 1.
template <class RowsOf>
int64_t most_rows(int ranks, const RowsOf& rows_of) {
  int64_t most = 1;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto rows = rows_of(rank);
    if (!rows.empty()) most = std::max(most, rows.back().row + rows.back().rows);
  }
  return most;
}

}  // namespace

LevelRows::LevelRows(const SequenceAttention& attention)
    : a_(attention),
      P_(static_cast<int>(attention.q.ranks.size())),
      placed_(level_parts(*attention.levels, attention.q)),
      parts_(placed_) {
  for (PromptPart& part : parts_) part.rank /= attention.levels->groups.back() / P_;
  for (int r = 0; r < P_; ++r) cached_.push_back(a_.kv.rows(r) - a_.q.rows(r));
}

const PromptPart& LevelRows::last() const {
  return *std::find_if(parts_.rbegin(), parts_.rend(),
                       [](const PromptPart& part) { return part.rows > 0; });
}

size_t LevelRows::level(size_t a, size_t b) const {
  return level_of(*a_.levels, placed_[a], placed_[b]);
}

int64_t LevelRows::kept(size_t reader, size_t part) const {
  return kept_keys(*a_.levels, placed_[reader], placed_[part]);
}

int64_t LevelRows::wanted(size_t part, int reader) const {
  int64_t most = 0;
  for (size_t i = part + 1; i < parts_.size(); ++i) {
    if ((reader >= 0 && parts_[i].rank != reader) || parts_[i].rows == 0) continue;
    most = std::max(most, kept(i, part));
  }
  return most;
}

int64_t LevelRows::thinned_row(size_t part) const {
  int64_t row = 0;
  for (size_t i = 0; i < part; ++i) {
    if (parts_[i].rank == parts_[part].rank) row += wanted(i);
  }
  return row;
}

int64_t LevelRows::thinned_rows() const {
  int64_t most = 1;
  for (size_t i = 0; i < parts_.size(); ++i) most = std::max(most, thinned_row(i) + wanted(i));
  return most;
}

std::vector<PulledRows> LevelRows::pulled(int reader) const {
  std::vector<PulledRows> rows;
  int64_t row = 0;
  const auto add = [&](PulledRows pulled) {
    if (pulled.rows == 0) return;
    pulled.row = row;
    row += pulled.rows;
    rows.push_back(pulled);
  };
  if (a_.q.rows(reader) == 0) return rows;
  for (int n = 1; n < P_; ++n) {  // each rank begins with another one
    const int source = (reader + n) % P_;
    add({.source = source, .rows = cached(source)});
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].rank != source) continue;
      add({.source = source,
           .thinned = true,
           .src_row = thinned_row(i),
           .rows = wanted(i, reader)});
    }
  }
  return rows;
}

int64_t LevelRows::pulled_rows() const {
  return most_rows(P_, [this](int rank) { return pulled(rank); });
}

std::vector<ReadRows> LevelRows::read(int rank) const {
  std::vector<ReadRows> found;
  int64_t row = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].rank != rank) continue;
    for (int reader = 0; reader < P_; ++reader) {
      const int64_t rows = reader == rank ? 0 : wanted(i, reader);
      if (rows == 0) continue;
      found.push_back({i, reader, row, rows});
      row += rows;
    }
  }
  return found;
}

int64_t LevelRows::inbox_rows() const {
  return most_rows(P_, [this](int rank) { return read(rank); });
}

int64_t buffer_row(std::span<const PulledRows> buffer, int source, bool thinned, int64_t src_row) {
  return std::ranges::find_if(buffer,
                              [&](const PulledRows& p) {
                                return p.source == source && p.thinned == thinned &&
                                       p.src_row == src_row;
                              })
      ->row;
}

}  // namespace braid
