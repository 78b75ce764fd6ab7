#pragma once

#include "braid/io/jinja/runtime.h"

namespace braid::jinja {

// Python's `format % arguments`: the conversions s r d i u f F e E g G x X o and %%, with flags,
// width, precision and, for a dict, names. A tuple holds several arguments.
Value format_printf(Runtime& runtime, const Str& format, const Value& arguments);

}  // namespace braid::jinja
