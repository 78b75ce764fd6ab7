#pragma once

#include <string>
#include <string_view>

namespace braid::jinja {

// The meaning of a string literal's inside: Python's escapes, without \N{...} and without
// surrogates, which no UTF-8 text can hold. Throws kMalformed with the line.
std::string unescape(std::string_view literal, int line);

}  // namespace braid::jinja
