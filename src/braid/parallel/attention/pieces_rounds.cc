// Which queries of a rank's own class other calls take along, so that calls end with full rounds.
#include <algorithm>
#include <limits>

#include "braid/base/math.h"
#include "braid/parallel/attention/pieces.h"

namespace braid {
namespace {

// Rounds that filling one call may take from another.
constexpr int64_t kMostRounds = 4;

}  // namespace

int64_t AttentionPieces::tiles(const Chunk& chunk, int rank) const {
  int64_t tiles = 0, rows = 0;
  const Piece* last = nullptr;
  for (const Piece& piece : chunk[static_cast<size_t>(rank)]) {
    if (piece.rows == 0) continue;
    if (last != nullptr && kept_apart(*last, piece)) {
      tiles += ceil_div(rows, a_.rounds.rows);
      rows = 0;
    }
    rows += piece.rows;
    last = &piece;
  }
  return tiles + ceil_div(rows, a_.rounds.rows);
}

// Rows [begin, end) of a rank's part of a chunk.
std::vector<Piece> AttentionPieces::slice(const std::vector<Piece>& pieces, int64_t begin,
                                          int64_t end) {
  std::vector<Piece> result;
  int64_t row = 0;
  for (const Piece& piece : pieces) {
    const int64_t from = std::max(begin - row, int64_t{0});
    const int64_t to = std::min(end - row, piece.rows);
    row += piece.rows;
    if (from >= to) continue;
    Piece& part = result.emplace_back(piece);
    part.row += from;
    part.position += from;
    part.owner_row += from;
    part.rows = to - from;
  }
  return result;
}

std::vector<AttentionPieces::OwnQueries> AttentionPieces::divide_own(
    const std::vector<Chunk>& queries, const Chunk& joint) const {
  const Chunk& own = queries[0];
  const int classes = static_cast<int>(queries.size());
  if (a_.rounds.rows < 1 || a_.rounds.tiles < 1 || classes == 1 || a_.masked())
    return {{0, false, own}};
  std::vector<OwnQueries> parts;
  for (int stage = 0; stage < classes; ++stage) {
    for (bool late : {false, true}) parts.push_back({stage, late, Chunk(own.size())});
  }
  for (int x = 0; x < world(); ++x) {
    const std::vector<Piece>& pieces = own[static_cast<size_t>(x)];
    int64_t rows = 0;
    for (const Piece& piece : pieces) rows += piece.rows;
    const int64_t unit = q_heads(x).size() * a_.batch;
    const auto rounds = [&](int64_t n) { return ceil_div(n * unit, a_.rounds.tiles); };
    // Tiles at the end of the last run of rows, which begin where tiles of the run do.
    int64_t run = 0;
    for (size_t i = pieces.size(); i-- > 0;) {
      run += pieces[i].rows;
      if (i > 0 && kept_apart(pieces[i - 1], pieces[i])) break;
    }
    const int64_t run_tiles = ceil_div(run, a_.rounds.rows);
    const int64_t most = std::min(
        run_tiles - 1, kMostRounds * ceil_div(a_.rounds.tiles, std::max(unit, int64_t{1})));
    const auto begin_of = [&](int64_t moved) {
      return moved <= 0 ? rows : rows - run + (run_tiles - moved) * a_.rounds.rows;
    };
    // The fewest tiles that `from` has to give for the fewest rounds of both.
    const auto to_move = [&](int64_t from, int64_t to, int64_t at_most) {
      int64_t best = 0;
      for (int64_t n = 1; n <= at_most; ++n) {
        if (rounds(from - n) + rounds(to + n) < rounds(from - best) + rounds(to + best)) best = n;
      }
      return best;
    };
    std::vector<int64_t> begins(static_cast<size_t>(classes), rows);  // of what a stage takes along
    int64_t moved = 0, later = tiles(joint, x), first = tiles(own, x) + later;
    for (int k = 1; k < classes; ++k) {
      const int64_t others = tiles(queries[static_cast<size_t>(k)], x);
      moved += to_move(first - moved, others, most - moved);
      begins[static_cast<size_t>(k)] = begin_of(moved);
      later += others;
    }
    const int64_t late_begin = begin_of(to_move(tiles(own, x), later, most));
    for (OwnQueries& part : parts) {
      const auto k = static_cast<size_t>(part.stage);
      // Stage k + 1 takes the rows before those of stage k; stage 0 has what is left.
      int64_t begin = k == 0 ? 0 : begins[k];
      int64_t end = k == 0 ? begins.back() : k == 1 ? rows : begins[k - 1];
      part.late ? begin = std::max(begin, late_begin) : end = std::min(end, late_begin);
      part.chunk[static_cast<size_t>(x)] = slice(pieces, begin, end);
    }
  }
  std::erase_if(parts, [](const OwnQueries& part) {
    return (part.stage > 0 || part.late) &&
           std::ranges::all_of(part.chunk, [](const auto& pieces) { return pieces.empty(); });
  });
  return parts;
}

std::optional<AttentionPieces::AheadQueries> AttentionPieces::divide_ahead(const Chunk& own) const {
  if (a_.rounds.rows < 1 || a_.rounds.tiles < 1 || a_.rounds.ahead < 1 || a_.masked()) return {};
  AheadQueries divided{Chunk(own.size()), Chunk(own.size())};
  bool any = false;
  for (int x = 0; x < world(); ++x) {
    const auto r = static_cast<size_t>(x);
    const int64_t by_head = a_.rounds.ahead * a_.rounds.tiles / (q_heads(x).size() * a_.batch);
    const int64_t rows = std::max<int64_t>(by_head, 1) * a_.rounds.rows;
    divided.ahead[r] = slice(own[r], 0, rows);
    divided.rest[r] = slice(own[r], rows, std::numeric_limits<int64_t>::max());
    any = any || !divided.rest[r].empty();
  }
  if (!any) return {};
  return divided;
}

}  // namespace braid
