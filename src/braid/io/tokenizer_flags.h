#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "braid/io/tokenizer_spec.h"

namespace braid {

enum TokenFlag : uint8_t {
  kSpecialFlag = 1,  // has no text: only the token's name yields the token, if names are asked for
  kEndFlag = 2,      // ends an answer
};

// True for names of tokens that end an answer in families with chats.
bool is_end_text(std::string_view text);

// True if text is spelled with the piece: a single character, or a byte of a byte fallback. A file
// that names such a piece as BOS or EOS does not make the piece special.
bool is_spelling(std::string_view piece, const TokenizerSpec& spec);

// TokenFlags of each token: u8 [V]. Added tokens, and pieces like <...>, that end an answer or are
// BOS are special for any type in the file: such pieces join `spec.added`. A piece for a single
// byte, in byte-level BPE's alphabet or as a byte fallback, is never special.
std::vector<uint8_t> token_flags(TokenizerSpec& spec);

}  // namespace braid
