#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

// A vocabulary entry's kind, with the numbers in GGUF's tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // without text: <|im_end|>, </s>
  kUserDefined = 4,  // matched in any text before the model sees it
  kUnused = 5,
  kByte = 6,  // <0x41> of a byte fallback
};

// A token that is found in the text itself, not by the model.
struct AddedToken {
  int32_t id = -1;
  std::string_view text;
  bool special = false;      // matched only when the caller asks; skipped in decoding
  bool lstrip = false;       // swallows white space on its left
  bool rstrip = false;       // swallows white space on its right
  bool single_word = false;  // not inside a word
  bool normalized = false;   // matched in normalized text, else in the raw text
};

// A step of the normalizer, in order.
struct NormalizeStep {
  enum class Kind : uint8_t {
    kNfc,             // Unicode normalization form C
    kPrepend,         // `to` in front of a non-empty text
    kReplace,         // each `from` by `to`
    kReplaceMatches,  // each match of the pattern `from` by `to`
    kLowercase,
    kStripLeft,   // white space at the start goes
    kStripRight,  // white space at the end goes
    kCharMap,     // SentencePiece's character map `from` (tokenizer_char_map.h)
  };
  Kind kind = Kind::kNfc;
  std::string from;
  std::string to;
};

// A step of the pre-tokenizer, in order: each cuts every piece left by the step before.
struct SplitStep {
  enum class Kind : uint8_t {
    kGpt2,         // GPT-2's pattern
    kLlama3,       // Llama-3's pattern: digits in groups of up to three, newlines apart
    kQwen2,        // Llama-3's with single digits
    kDigits,       // every digit by itself
    kDigitRuns,    // runs of digits apart from the rest
    kRegex,        // `text` is a pattern; `behavior` says how matches are used
    kPrefixSpace,  // a space in front of a piece without a space
    kMetaspace,    // spaces become `text`, which also starts each word
    kWhitespace,   // cuts at white space, which is dropped
  };
  enum class Prepend : uint8_t { kNever, kFirst, kAlways };
  enum class Behavior : uint8_t {
    kIsolated,            // matches and the gaps between them are pieces
    kRemoved,             // gaps are pieces, matches are dropped
    kMergedWithPrevious,  // a match ends the piece before it
    kMergedWithNext,      // a match begins the piece behind it
    kContiguous,          // neighbouring matches are one piece
  };
  Kind kind = Kind::kGpt2;
  std::string text;
  Behavior behavior = Behavior::kIsolated;  // kRegex
  bool invert = false;                      // kRegex: gaps count as matches, matches as gaps
  Prepend prepend = Prepend::kNever;        // kMetaspace: where `text` is put in front
  bool split = false;                       // kMetaspace: cut in front of each `text`
};

// How pieces become text again.
struct DecodeRule {
  bool byte_level = false;     // pieces spell bytes in GPT-2's alphabet; else they are UTF-8
  bool byte_fallback = false;  // <0x41> is a byte
  std::string space;           // stands for a space ("▁"); empty: none
  int strip_left = 0;          // number of spaces cut from the start of the text
  bool strip_first = false;    // every `space` of the first token is cut (Metaspace)
  std::string end_of_word;     // becomes a space at a piece's end (CLIP's "</w>"); or empty
};

struct MergePair {
  std::string_view left;
  std::string_view right;
};

struct SpecialIds {
  int32_t bos = -1;
  int32_t eos = -1;
  int32_t eot = -1;
  int32_t unk = -1;
  int32_t pad = -1;
};

// A whole tokenizer as plain data: readers of file formats make a spec for a
// Tokenizer. V is the vocabulary size. The views point into `storage`, or into memory that the
// maker of the spec keeps alive longer than every Tokenizer made from it (a mapped GGUF file).
struct TokenizerSpec {
  std::string name = "tokenizer";        // the file, for messages
  std::vector<std::string_view> pieces;  // [V], as the model spells them
  std::vector<TokenType> types;          // [V], or empty: all kNormal
  std::vector<float> scores;             // [V]: merge by score (SentencePiece); or empty
  std::vector<MergePair> merges;         // by rank, used when there are no scores
  std::vector<double> log_probs;         // [V]: unigram model instead of BPE; or empty
  std::string end_of_word;               // mark behind the last character of a word; or empty
  bool byte_level = false;     // the text is spelled in GPT-2's byte alphabet; else in characters
  bool byte_fallback = false;  // characters without a piece are spelled as <0x41> bytes
  int32_t unknown = -1;        // replaces other characters; -1: drops them
  bool fuse_unk = false;       // a run of unknown characters is a single token
  bool ignore_merges = false;  // a word that is a piece needs no merging (Llama-3)
  std::vector<NormalizeStep> normalize;
  std::vector<SplitStep> split;
  DecodeRule decode;
  std::vector<AddedToken> added;
  SpecialIds special;
  std::vector<int32_t> prefix;             // put in front by EncodeOptions::add_special
  std::vector<int32_t> suffix;             // put behind by it
  std::vector<int32_t> end_of_generation;  // ids known to end an answer; may be extended
  std::shared_ptr<const void> storage;
};

}  // namespace braid
