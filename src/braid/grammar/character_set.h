#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace braid {

// A UTF-8 text's characters; empty for text that is not UTF-8.
std::vector<uint32_t> characters_of(std::string_view text);
std::string text_of(uint32_t character);

// A set of characters, without halves of surrogate pairs.
class CharacterSet {
 public:
  static CharacterSet digits();
  static CharacterSet word();
  static CharacterSet ascii_blanks();
  static CharacterSet blanks();           // Unicode's blanks
  static CharacterSet line_ends();        // characters outside `.`
  static CharacterSet escaped_in_json();  // in strings: ", \ and control characters

  void add(uint32_t first, uint32_t last);  // both inclusive
  void add(const CharacterSet& other);
  void remove(const CharacterSet& other);
  void invert();
  bool empty() const { return ranges_.empty(); }

  // A class of a regular expression, such as [\u{61}-\u{7a}]; the set is not empty.
  std::string regex() const;

 private:
  std::vector<std::pair<uint32_t, uint32_t>> ranges_;  // in order, apart
};

}  // namespace braid
