#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "braid/io/jinja/args.h"
#include "braid/io/jinja/runtime.h"

// The searching and splitting behind Python's str methods, on valid UTF-8, in linear time.
namespace braid::jinja {

size_t find_text(std::string_view text, std::string_view part, size_t from = 0);
int64_t count_text(std::string_view text, std::string_view part);  // without overlap

// Pieces between separators; at most `limit` cuts, counted from the right where asked.
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       size_t limit, bool from_right);
// Non-empty pieces between runs of white space.
std::vector<std::string_view> split_space(std::string_view text, size_t limit, bool from_right);
// str.splitlines.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

// str.replace; `limit` < 0 is no limit.
Value replace_text(Runtime& runtime, std::string_view text, std::string_view from,
                   std::string_view to, int64_t limit, bool markup = false);
// str.strip at the chosen ends; without `characters`, white space.
std::string_view strip_text(std::string_view text, std::optional<std::string_view> characters,
                            bool left = true, bool right = true);

std::string title_case(std::string_view text);  // str.title
// Whether the text has cased characters and all satisfy `wanted`.
bool all_cased(std::string_view text, bool (*wanted)(char32_t));

// The part of a text selected by a call's arguments 1 and 2, start and end, and the index of the
// part's first character. Nothing if start lies behind the end.
struct Window {
  std::string_view text;
  int64_t start;
};
std::optional<Window> text_window(Runtime& runtime, const Str& text, const Bound& bound);

}  // namespace braid::jinja
