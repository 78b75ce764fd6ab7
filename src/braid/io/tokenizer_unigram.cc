#include "braid/io/tokenizer_unigram.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "braid/base/error.h"
#include "braid/io/tokenizer_flags.h"
#include "braid/io/tokenizer_utf8.h"

namespace braid {
namespace {

constexpr double kUnknownPenalty = 10;

}  // namespace

Unigram::Unigram(const TokenizerSpec& spec, std::span<const uint8_t> flags) : spec_(spec) {
  if (spec.unknown < 0) fail(ErrorCode::kMalformed, "a unigram model has no unknown token");
  double least = 0;
  for (size_t id = 0; id < spec.pieces.size(); ++id) {
    const double score = spec.log_probs[id];
    if (!std::isfinite(score)) {
      fail(ErrorCode::kMalformed, "the log probability of piece {} is {}", id, score);
    }
    least = id == 0 ? score : std::min(least, score);
    if (spec.pieces[id].empty() || flags[id] & kSpecialFlag) continue;
    entries_.push_back({spec.pieces[id], static_cast<int32_t>(id)});
  }
  unknown_score_ = least - kUnknownPenalty;
  // Of equal pieces the last counts, as in Hugging Face.
  std::ranges::sort(entries_, [](const Entry& a, const Entry& b) {
    return a.piece != b.piece ? a.piece < b.piece : a.id > b.id;
  });
  const auto rest = std::ranges::unique(entries_, {}, &Entry::piece);
  entries_.erase(rest.begin(), rest.end());
  if (!spec.byte_fallback) return;
  for (int b = 0; b < 256; ++b) {
    bytes_.push_back(find(fmt::format("<0x{:02X}>", b)));
    if (bytes_.back() < 0) {
      bytes_.clear();
      return;
    }
  }
}

int32_t Unigram::find(std::string_view piece) const {
  const auto at = std::ranges::lower_bound(entries_, piece, {}, &Entry::piece);
  return at != entries_.end() && at->piece == piece ? at->id : -1;
}

template <class Found>
void Unigram::prefixes(std::string_view text, const Found& found) const {
  // The entries that agree with the text so far, [first, last), narrowed byte by byte.
  auto first = entries_.begin();
  auto last = entries_.end();
  for (size_t size = 1; size <= text.size(); ++size) {
    const auto byte = static_cast<uint8_t>(text[size - 1]);
    const auto at = [&](const Entry& entry) {  // shorter entries come first
      return entry.piece.size() < size
                 ? -1
                 : static_cast<int>(static_cast<uint8_t>(entry.piece[size - 1]));
    };
    first = std::partition_point(first, last, [&](const Entry& e) { return at(e) < byte; });
    last = std::partition_point(first, last, [&](const Entry& e) { return at(e) == byte; });
    if (first == last) return;
    if (first->piece.size() == size) found(size, first->id);
  }
}

void Unigram::encode(std::string_view text, std::vector<int32_t>& ids) const {
  struct Node {
    double score = 0;         // of the best way to spell the text up to here
    size_t begin = SIZE_MAX;  // begin of the best way's last piece; SIZE_MAX: no way is known
    int32_t id = -1;
  };
  std::vector<Node> ends(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    const size_t character = decode_utf8(text, at).size;
    const double before = ends[at].score;
    const auto offer = [&](size_t size, int32_t id, double score) {
      Node& node = ends[at + size];
      if (node.begin == SIZE_MAX || before + score > node.score) node = {before + score, at, id};
    };
    bool has_character = false;
    prefixes(text.substr(at), [&](size_t size, int32_t id) {
      offer(size, id, spec_.log_probs[id]);
      has_character = has_character || size == character;
    });
    if (!has_character) offer(character, spec_.unknown, unknown_score_);
    at += character;
  }
  const auto start = static_cast<std::ptrdiff_t>(ids.size());
  bool after_unknown = false;
  for (size_t end = text.size(); end > 0;) {  // from the last piece to the first
    const Node& node = ends[end];
    const bool unknown = node.id == spec_.unknown;
    if (unknown && !bytes_.empty()) {
      for (size_t i = end; i > node.begin; --i) {
        ids.push_back(bytes_[static_cast<uint8_t>(text[i - 1])]);
      }
    } else if (!unknown || !after_unknown) {
      ids.push_back(node.id);
    }
    after_unknown = unknown;
    end = node.begin;
  }
  std::reverse(ids.begin() + start, ids.end());
}

}  // namespace braid
