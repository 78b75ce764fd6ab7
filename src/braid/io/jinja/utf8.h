#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// UTF-8 text as Python's str sees it: code points, not bytes. Every function but valid() takes
// valid UTF-8 (no surrogates, no overlong forms), which the interpreter checks where text enters.
namespace braid::jinja::utf8 {

bool valid(std::string_view text);

// The code point that starts at byte `pos`; moves `pos` past the code point.
char32_t next(std::string_view text, size_t& pos);
void append(std::string& out, char32_t c);

int64_t count(std::string_view text);
// Byte offset of code point `index`, 0 <= index <= count(text).
size_t offset(std::string_view text, int64_t index);
std::vector<std::string_view> split_characters(std::string_view text);

bool is_space(char32_t c);     // str.isspace
bool is_line_end(char32_t c);  // as in str.splitlines
bool is_letter(char32_t c);    // str.isalpha
bool is_decimal(char32_t c);   // str.isdecimal
bool is_digit(char32_t c);     // str.isdigit
bool is_numeric(char32_t c);   // str.isnumeric
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_cased(char32_t c);
bool is_printable(char32_t c);  // repr() leaves it unescaped
bool is_word(char32_t c);       // \w of a regular expression

// Simple case mapping, a code point each; except for the sharp s, which becomes SS.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);  // the first character upper, the rest lower

}  // namespace braid::jinja::utf8
