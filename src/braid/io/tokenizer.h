#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "braid/io/tokenizer_spec.h"

namespace braid {

struct EncodeOptions {
  bool add_special = true;     // put the model's prefix and suffix (BOS, EOS) around the text
  bool parse_special = false;  // read special tokens' text in `text` as those tokens
  // A character directly before this mark takes no part in a special token; the marks themselves
  // are dropped (see Tokenizer::defuse). Empty: there are none.
  std::string_view mark = {};
};

struct DecodeOptions {
  bool skip_special = true;   // leave special tokens out of the text
  bool continuation = false;  // the text goes on from other text: keep its leading space
};

// Text to token ids and back, for byte-level BPE (GPT-2, SmolLM, Llama-3, Qwen2), BPE with marked
// ends of words (CLIP), SentencePiece BPE (Llama-2, Mistral) and SentencePiece unigram (T5). Equal
// to Hugging Face's `tokenizers` for valid UTF-8. Bytes that are not UTF-8 are kept: byte-level BPE
// spells them like any byte and byte fallback as <0xNN>. Text outside the vocabulary becomes
// its unknown token, or is dropped where it has none (21 bytes that no UTF-8 text holds, or hardly
// any, are missing in SmolLM2's). Immutable: threads may share one.
//
// Cost: encode is O(n log n) in the bytes of the text, whatever the text; for unigram n times the
// longest piece. Text of 2 GiB or more is
// refused (kInvalidArgument).
class Tokenizer {
 public:
  // Checks the whole spec: fails with kMalformed on ids out of range, on merges or bytes that the
  // vocabulary does not have, with kUnsupported on a pattern that does not compile.
  explicit Tokenizer(TokenizerSpec spec);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // `text` with `mark` behind each character of any spelling of a special token, before or after
  // normalization: encoded with that mark the text stays plain, even with parse_special. `mark` is
  // a character that occurs neither in the text nor in any token.
  std::string defuse(std::string_view text, std::string_view mark) const;

  // The text of ids, always valid UTF-8: bytes that do not form a character become U+FFFD.
  // Fails with kInvalidArgument on an id outside [0, vocab_size()).
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;

  // Tokens that EncodeOptions::add_special puts in front of a text, and behind: BOS and EOS, or
  // nothing, or more.
  std::span<const int32_t> prefix() const;
  std::span<const int32_t> suffix() const;
  int32_t vocab_size() const;
  const SpecialIds& special() const;

  // All fail with kInvalidArgument on an id out of range.
  std::string_view piece(int32_t id) const;  // as the vocabulary spells it, "Ġthe" or "▁the"
  std::string bytes(int32_t id) const;       // the id's bytes in text, perhaps part of a character;
                                             // a special token gives its text
  TokenType type(int32_t id) const;
  bool is_special(int32_t id) const;            // control, unknown and added special tokens
  bool is_end_of_generation(int32_t id) const;  // EOS, end of turn, end of text, ...

  // The id with this spelling of its piece.
  std::optional<int32_t> find(std::string_view piece) const;

 private:
  friend class StreamDecoder;
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

// Decodes ids as they are made. The returned strings, joined, equal Tokenizer::decode of the same
// ids; no string ends inside a UTF-8 character.
class StreamDecoder {
 public:
  // `tokenizer` must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options = {});

  // The text that `id` completes; empty while a character is unfinished.
  std::string push(int32_t id);
  // The rest: an unfinished character becomes U+FFFD. Then the decoder is as new.
  std::string finish();

 private:
  void append(int32_t id, std::string& out);

  friend class Tokenizer;
  const Tokenizer::Impl* impl_;
  DecodeOptions options_;
  std::string pending_;  // at most three bytes: the start of a character
  int strip_ = 0;        // spaces still to be cut from the start
  bool first_ = true;    // no token has been decoded yet
};

}  // namespace braid
