#pragma once

#include "braid/io/jinja/scope.h"

namespace braid::jinja {

// Sets what every template may call: range, dict, namespace, joiner, cycler, raise_exception and
// strftime_now.
void set_globals(Runtime& runtime, Scope& scope);

}  // namespace braid::jinja
