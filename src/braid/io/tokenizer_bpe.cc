#include "braid/io/tokenizer_bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "braid/base/error.h"
#include "braid/io/tokenizer_alphabet.h"
#include "braid/io/tokenizer_flags.h"
#include "braid/io/tokenizer_utf8.h"

namespace braid {
namespace {

// Words up to this many symbols are merged by looking at all pairs each time; longer ones by heap.
constexpr size_t kShortWord = 24;
constexpr size_t kCacheEntries = 2048;
constexpr size_t kCachePays = 4096;  // bytes of text

// Scores as ranks: unsigned integers in the opposite order.
uint32_t rank_of(float score) {
  const auto bits = std::bit_cast<uint32_t>(score == 0 ? 0.0f : score);
  const uint32_t ascending = bits & 0x80000000 ? ~bits : bits | 0x80000000;
  return ~ascending;
}

constexpr std::string_view kMark = "\u2581";

// The first place behind `at` with a mark after another character; the end without such a
// place.
size_t next_mark(std::string_view text, size_t at) {
  for (size_t place = text.find(kMark, at); place != text.npos;
       place = text.find(kMark, place + kMark.size())) {
    if (place > at && !text.substr(0, place).ends_with(kMark)) return place;
  }
  return text.size();
}

}  // namespace

BpeScratch::BpeScratch(size_t text_bytes) {
  if (text_bytes >= kCachePays) cache_.resize(kCacheEntries);
}

Bpe::Bpe(const TokenizerSpec& spec, const Vocabulary& vocab, std::span<const uint8_t> flags)
    : spec_(spec), vocab_(vocab), flags_(flags), merges_(spec.merges, vocab, flags) {
  for (const float score : spec.scores) {
    if (std::isnan(score)) {
      fail(ErrorCode::kMalformed, "the score of piece {} is not a number", score_ranks_.size());
    }
    score_ranks_.push_back(rank_of(score));
  }
  cut_at_marks_ =
      !spec.byte_level && !spec.ignore_merges && spec.end_of_word.empty() && vocab.find(kMark) >= 0;
  for (const std::string_view piece : spec.pieces) {
    longest_piece_ = std::max(longest_piece_, piece.size());
    cut_at_marks_ = cut_at_marks_ && next_mark(piece, 0) == piece.size();
  }
  bytes_.fill(-1);
  ends_.fill(-1);
  for (int b = 0; b < 256; ++b) {
    if (spec.byte_level) {
      bytes_[b] = vocab.find(byte_alphabet()[b]);
      ends_[b] = plain(std::string(byte_alphabet()[b]) + spec.end_of_word);
    } else if (spec.byte_fallback) {
      bytes_[b] = vocab.find(fmt::format("<0x{:02X}>", b));
    }
  }
  for (int c = 0; c < 128; ++c) {
    const char text = static_cast<char>(c);
    ascii_[c] = plain({&text, 1});
  }
}

int32_t Bpe::plain(std::string_view piece) const {
  const int32_t id = vocab_.find(piece);
  return id >= 0 && flags_[id] & kSpecialFlag ? -1 : id;
}

// The word as symbols, one for each byte or character.
void Bpe::spell(std::string_view word, std::vector<Symbol>& symbols) const {
  symbols.clear();
  const auto add = [&](size_t begin, size_t size, int32_t id) {
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back(
        {static_cast<uint32_t>(begin), static_cast<uint32_t>(size), id, index - 1, index + 1});
  };
  bool after_unknown = false;
  const auto unknown = [&](size_t begin, size_t size) {
    if (spec_.unknown < 0) return;
    if (spec_.fuse_unk && after_unknown) {
      symbols.back().size += static_cast<uint32_t>(size);
    } else {
      add(begin, size, spec_.unknown);
    }
    after_unknown = true;
  };
  const auto falls_back = [&](std::string_view character) {
    return std::ranges::all_of(character,
                               [&](char c) { return bytes_[static_cast<uint8_t>(c)] >= 0; });
  };
  for (size_t at = 0; at < word.size();) {
    const auto lead = static_cast<uint8_t>(word[at]);
    size_t size = 1;
    int32_t id = -1;
    if (spec_.byte_level) {
      const bool marked = !spec_.end_of_word.empty() && at + 1 == word.size();
      id = marked ? ends_[lead] : bytes_[lead];
    } else if (lead < 128) {
      id = ascii_[lead];
    } else {
      const Utf8Char c = decode_utf8(word, at);
      if (c.status == Utf8Status::kValid) {
        size = c.size;
        id = plain(word.substr(at, size));
      }
    }
    if (id >= 0) {
      add(at, size, id);
      after_unknown = false;
    } else if (!spec_.byte_level && falls_back(word.substr(at, size))) {
      for (size_t i = at; i < at + size; ++i) add(i, 1, bytes_[static_cast<uint8_t>(word[i])]);
      after_unknown = false;
    } else {
      unknown(at, size);
    }
    at += size;
  }
  if (!symbols.empty()) symbols.back().next = -1;
}

Merge Bpe::find(std::string_view word, const Symbol& left, const Symbol& right) const {
  if (score_ranks_.empty()) return merges_.find(left.id, right.id);
  const size_t size = left.size + right.size;
  if (size > longest_piece_ || left.begin + left.size != right.begin) return {};
  const int32_t id = plain(word.substr(left.begin, size));
  if (id < 0) return {};
  const TokenType type = spec_.types.empty() ? TokenType::kNormal : spec_.types[id];
  if (type != TokenType::kNormal && type != TokenType::kUserDefined) return {};
  return {std::min(score_ranks_[id], UINT32_MAX - 1), id};
}

void Bpe::merge_short(std::string_view word, BpeScratch& scratch) const {
  auto& symbols = scratch.symbols_;
  auto& merges = scratch.merges_;
  merges.resize(symbols.size());
  for (size_t i = 0; i + 1 < symbols.size(); ++i)
    merges[i] = find(word, symbols[i], symbols[i + 1]);
  for (size_t n = symbols.size(); n > 1; --n) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == UINT32_MAX) return;
    symbols[best].id = merges[best].id;
    symbols[best].size += symbols[best + 1].size;
    symbols.erase(symbols.begin() + best + 1);
    merges.erase(merges.begin() + best);
    if (best + 1 < symbols.size()) merges[best] = find(word, symbols[best], symbols[best + 1]);
    if (best > 0) merges[best - 1] = find(word, symbols[best - 1], symbols[best]);
  }
}

void Bpe::merge_long(std::string_view word, BpeScratch& scratch) const {
  auto& symbols = scratch.symbols_;
  auto& heap = scratch.heap_;
  heap.clear();
  const auto candidate = [&](int32_t left, int32_t right) {
    const Merge merge = find(word, symbols[left], symbols[right]);
    if (merge.rank == UINT32_MAX) return false;
    heap.push_back({static_cast<uint64_t>(merge.rank) << 32 | static_cast<uint32_t>(left),
                    symbols[left].size + symbols[right].size});
    return true;
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    candidate(static_cast<int32_t>(i), static_cast<int32_t>(i + 1));
  }
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const BpeScratch::Candidate top = heap.back();
    heap.pop_back();
    const auto l = static_cast<int32_t>(top.key & UINT32_MAX);
    Symbol& left = symbols[l];
    if (left.size == 0 || left.next < 0) continue;
    const int32_t r = left.next;
    if (left.size + symbols[r].size != top.size) continue;
    left.id = find(word, left, symbols[r]).id;
    left.size = top.size;
    left.next = symbols[r].next;
    symbols[r].size = 0;
    if (left.next >= 0) {
      symbols[left.next].prev = l;
      if (candidate(l, left.next)) std::push_heap(heap.begin(), heap.end());
    }
    if (left.prev >= 0 && candidate(left.prev, l)) std::push_heap(heap.begin(), heap.end());
  }
  std::erase_if(symbols, [](const Symbol& s) { return s.size == 0; });
}

// The id of a word that is a piece in the model, or -1.
int32_t Bpe::whole_word(std::string_view word) const {
  int32_t id = -1;
  if (!spec_.byte_level) {
    id = plain(word);
  } else if (word.size() <= longest_piece_) {
    std::string spelled;
    for (const char c : word) spelled += byte_alphabet()[static_cast<uint8_t>(c)];
    id = plain(spelled);
  }
  if (id < 0 || spec_.types.empty()) return id;
  const TokenType type = spec_.types[id];
  return type == TokenType::kNormal || type == TokenType::kByte ? id : -1;
}

void Bpe::encode(std::string_view text, BpeScratch& scratch, std::vector<int32_t>& ids) const {
  for (size_t at = 0; at < text.size();) {
    const size_t end = cut_at_marks_ ? next_mark(text, at) : text.size();
    encode_word(text.substr(at, end - at), scratch, ids);
    at = end;
  }
}

void Bpe::encode_word(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids) const {
  BpeScratch::Cached* cached = nullptr;
  if (!scratch.cache_.empty() && word.size() <= BpeScratch::kCachedBytes) {
    cached = &scratch.cache_[hash_bytes(word) % kCacheEntries];
    if (std::string_view(cached->text.data(), cached->size) == word) {
      ids.insert(ids.end(), cached->ids.begin(), cached->ids.begin() + cached->count);
      return;
    }
  }
  const size_t before = ids.size();
  int32_t whole = -1;
  if (spec_.ignore_merges) whole = whole_word(word);
  if (whole >= 0) {
    ids.push_back(whole);
  } else {
    spell(word, scratch.symbols_);
    if (scratch.symbols_.size() <= kShortWord) {
      merge_short(word, scratch);
    } else {
      merge_long(word, scratch);
    }
    for (const Symbol& symbol : scratch.symbols_) ids.push_back(symbol.id);
  }
  const size_t count = ids.size() - before;
  if (cached && count <= cached->ids.size()) {
    cached->size = static_cast<uint8_t>(word.size());
    cached->count = static_cast<uint8_t>(count);
    std::ranges::copy(word, cached->text.begin());
    std::copy(ids.begin() + before, ids.end(), cached->ids.begin());
  }
}

}  // namespace braid
