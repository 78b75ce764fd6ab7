#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "braid/io/tokenizer.h"
#include "braid/io/tokenizer_added.h"
#include "braid/io/tokenizer_bpe.h"
#include "braid/io/tokenizer_normalize.h"
#include "braid/io/tokenizer_split.h"
#include "braid/io/tokenizer_unigram.h"
#include "braid/io/tokenizer_vocab.h"

namespace braid {

// Shared by a Tokenizer and its StreamDecoders. The members point into each other: never moved.
struct Tokenizer::Impl {
  explicit Impl(TokenizerSpec given);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void check_range(int32_t id) const;
  // For an id in range; `space` is the text for DecodeRule::space.
  void append_bytes(int32_t id, std::string_view space, std::string& out) const;
  void append_spelled(std::string_view piece, std::string_view space, std::string& out) const;

  TokenizerSpec spec;
  std::vector<uint8_t> flags;  // [V], of TokenFlag
  Vocabulary vocab;
  Normalizer normalizer;
  PreTokenizer splitter;
  std::optional<Unigram> unigram;  // else `bpe`
  Bpe bpe;
  AddedTokens raw_added;
  AddedTokens normalized_added;
  AddedTokens special_texts;             // all special tokens, by their own text
  AddedTokens normalized_special_texts;  // tokens looked for in normalized text, in normalized form
};

}  // namespace braid
