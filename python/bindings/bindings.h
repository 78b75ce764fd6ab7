#pragma once

#include <nanobind/nanobind.h>

#include <stdexcept>

namespace braid::python {

namespace nb = nanobind;

void bind_strategies(nb::module_& m);
void bind_plans(nb::module_& m);
void bind_engine(nb::module_& m);

// Runs `call` without the interpreter's lock.
template <class F>
auto unlocked(F&& call) {
  nb::gil_scoped_release release;
  return call();
}

}  // namespace braid::python
