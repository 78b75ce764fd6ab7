#pragma once

#include "braid/io/jinja/scope.h"

namespace braid::jinja {

// Sets the functions for every template: range, dict, namespace, joiner, cycler, raise_exception
// and strftime_now.
void set_globals(Runtime& runtime, Scope& scope);

}  // namespace braid::jinja
