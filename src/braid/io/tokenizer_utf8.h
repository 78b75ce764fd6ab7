#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace braid {

enum class Utf8Status : uint8_t { kValid, kInvalid, kIncomplete };

// A step over UTF-8 text. kValid: a character of `size` bytes. kInvalid: `size` bytes (at least
// one) outside any character, the maximal subpart of Unicode 3.9. kIncomplete: the `size` bytes
// left are a proper start of a character.
struct Utf8Char {
  char32_t code = 0xfffd;
  uint8_t size = 1;
  Utf8Status status = Utf8Status::kInvalid;
};
Utf8Char decode_utf8(std::string_view text, size_t at);  // at < text.size()

void append_utf8(char32_t code, std::string& out);

// Appends the lower case of `code`, by itself: a final sigma is like any other.
void append_lower(char32_t code, std::string& out);

// The end of the grapheme cluster that starts at `at` < text.size(); non-UTF-8 bytes are separate
// clusters.
size_t grapheme_end(std::string_view text, size_t at);

// The general categories that pre-tokenizers tell apart: \p{L}, \p{N}, \s, and the rest.
enum class CharClass : uint8_t { kOther, kLetter, kNumber, kSpace };
CharClass char_class(char32_t code);

// A character of text for a pre-tokenizer: each non-UTF-8 byte counts as kOther.
struct ClassedChar {
  CharClass kind;
  uint8_t size;
};
ClassedChar classed_char(std::string_view text, size_t at);  // at < text.size()

// \w of a regular expression: letters, marks, decimal digits, connectors.
bool is_word_char(char32_t code);

// Normalization form C. Linear in the text except for sorting runs of combining marks; keeps
// non-UTF-8 bytes.
std::string to_nfc(std::string_view text);

}  // namespace braid
