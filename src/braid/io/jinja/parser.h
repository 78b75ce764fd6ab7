#pragma once

#include <string_view>

#include "braid/io/jinja/ast.h"

namespace braid::jinja {

// Parses a template. Throws kMalformed (with the line) for text outside Jinja, kUnsupported for
// extends, include, import, block and autoescape, and for nesting beyond kMaxNesting.
inline constexpr int kMaxNesting = 150;
Ast parse(std::string_view source);

}  // namespace braid::jinja
