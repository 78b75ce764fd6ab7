#pragma once

#include <string>
#include <string_view>

namespace braid::jinja {

// What the inside of a string literal stands for: Python's escapes, without \N{...} and without
// surrogates, which no UTF-8 text can hold. Throws kMalformed with the line.
std::string unescape(std::string_view literal, int line);

}  // namespace braid::jinja
