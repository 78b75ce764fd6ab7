#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "braid/io/tokenizer_spec.h"

namespace braid {

enum TokenFlag : uint8_t {
  kSpecialFlag = 1,  // has no text of its own: no text yields it but its name, where that is asked
  kEndFlag = 2,      // ends an answer
};

// True for the names of tokens that end an answer in the model families that chat.
bool is_end_text(std::string_view text);

// True where text is spelled with the piece: one character, or a byte of a byte fallback. Such a
// piece becomes no special token because a file names it as BOS, EOS or the like.
bool is_spelling(std::string_view piece, const TokenizerSpec& spec);

// TokenFlags of each token: u8 [V]. Added tokens, and pieces like <...>, that end an answer or
// are BOS are special, whatever the file says of their type: they join `spec.added` so. A piece
// that spells one byte, in the alphabet of byte-level BPE or as a byte fallback, is never special.
std::vector<uint8_t> token_flags(TokenizerSpec& spec);

}  // namespace braid
