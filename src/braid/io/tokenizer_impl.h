#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "braid/io/tokenizer.h"
#include "braid/io/tokenizer_added.h"
#include "braid/io/tokenizer_bpe.h"
#include "braid/io/tokenizer_split.h"
#include "braid/io/tokenizer_vocab.h"

namespace braid {

// What a Tokenizer and its StreamDecoders share. The members point into each other: never moved.
struct Tokenizer::Impl {
  explicit Impl(TokenizerSpec given);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void check_range(int32_t id) const;
  // Of an id in range; `space` is what DecodeRule::space becomes.
  void append_bytes(int32_t id, std::string_view space, std::string& out) const;

  enum Flag : uint8_t { kSpecial = 1, kEnd = 2 };

  TokenizerSpec spec;
  Vocabulary vocab;
  PreTokenizer splitter;
  Bpe bpe;
  std::vector<uint8_t> flags;  // [V], of Flag
  AddedTokens raw_added;
  AddedTokens normalized_added;
};

}  // namespace braid
