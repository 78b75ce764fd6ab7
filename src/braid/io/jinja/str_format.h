#pragma once

#include "braid/io/jinja/runtime.h"

namespace braid::jinja {

// Python's str.format: fields such as {}, {0}, {name}, {0.role}, {0[key]}, the conversions !s and
// !r, and format specifications without nested fields. Attributes go through the sandbox.
Value format_braces(Runtime& runtime, const Str& format, const Args& args);

}  // namespace braid::jinja
