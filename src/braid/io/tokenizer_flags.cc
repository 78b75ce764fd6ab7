#include "braid/io/tokenizer_flags.h"

#include <algorithm>
#include <array>

#include "braid/io/tokenizer_alphabet.h"
#include "braid/io/tokenizer_utf8.h"

namespace braid {
namespace {

constexpr std::array<std::string_view, 11> kEndTexts = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<|eot|>",
    "<end_of_turn>",
    "<EOT>",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
};

bool is_one_character(std::string_view piece) {
  return !piece.empty() && decode_utf8(piece, 0).size == piece.size();
}

bool spells_byte(std::string_view piece, const TokenizerSpec& spec) {
  if (spec.byte_fallback && piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>')) {
    return true;
  }
  return spec.byte_level && is_one_character(piece) && byte_of(decode_utf8(piece, 0).code) >= 0;
}

// <...> or [...]: a file's ids for BOS and end tokens may be stale, and name a piece that text
// needs.
bool looks_special(std::string_view piece) {
  return piece.size() > 2 && ((piece.front() == '<' && piece.back() == '>') ||
                              (piece.front() == '[' && piece.back() == ']'));
}

}  // namespace

bool is_end_text(std::string_view text) {
  return std::ranges::count(kEndTexts, text) > 0;
}

bool is_spelling(std::string_view piece, const TokenizerSpec& spec) {
  return piece.empty() || is_one_character(piece) || spells_byte(piece, spec);
}

std::vector<uint8_t> token_flags(TokenizerSpec& spec) {
  std::vector<uint8_t> flags(spec.pieces.size());
  const auto end = [&](int32_t id) {
    if (id >= 0) flags[id] |= kEndFlag;
  };
  for (const int32_t id : spec.end_of_generation) end(id);
  end(spec.special.eos);
  end(spec.special.eot);
  for (const AddedToken& token : spec.added) {
    if (is_end_text(token.text)) end(token.id);
  }

  std::vector<bool> known(spec.pieces.size());
  for (const AddedToken& token : spec.added) known[token.id] = true;
  std::vector<bool> named(spec.pieces.size());  // special by purpose
  for (size_t id = 0; id < flags.size(); ++id) {
    const bool bos = static_cast<int32_t>(id) == spec.special.bos;
    named[id] = (bos || flags[id] & kEndFlag) && (known[id] || looks_special(spec.pieces[id]));
  }
  for (AddedToken& token : spec.added) {
    token.special = token.special || named[token.id];
    if (token.special) flags[token.id] |= kSpecialFlag;
  }
  for (size_t id = 0; id < flags.size(); ++id) {
    const TokenType type = spec.types.empty() ? TokenType::kNormal : spec.types[id];
    if (named[id] || type == TokenType::kControl || type == TokenType::kUnknown) {
      flags[id] |= kSpecialFlag;
    }
    if (named[id] && !known[id]) {
      spec.added.push_back(
          {.id = static_cast<int32_t>(id), .text = spec.pieces[id], .special = true});
    }
  }
  for (size_t id = 0; id < flags.size(); ++id) {
    if (spells_byte(spec.pieces[id], spec)) flags[id] &= ~kSpecialFlag;
  }
  return flags;
}

}  // namespace braid
