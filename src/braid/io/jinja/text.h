#pragma once

#include <string>
#include <string_view>

#include "braid/io/jinja/runtime.h"

// Values as text, as Python prints them.
namespace braid::jinja {

void append_str(Runtime& runtime, Text& out, const Value& value);   // str(value)
void append_repr(Runtime& runtime, Text& out, const Value& value);  // repr(value)
std::string to_str(Runtime& runtime, const Value& value);
std::string to_repr(Runtime& runtime, const Value& value);
std::string quote(std::string_view text);  // repr of a string

// A string's text without a copy, any other value's str(); `storage` backs the str().
std::string_view text_of(Runtime& runtime, const Value& value, std::string& storage);

// HTML-escaped, as the filter `escape` does; text marked safe stays unchanged.
Value escape_html(Runtime& runtime, const Value& value);

}  // namespace braid::jinja
