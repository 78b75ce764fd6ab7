#pragma once

#include <nanobind/nanobind.h>

#include <stdexcept>

namespace braid {
class OpScheduler;
}

namespace braid::python {

namespace nb = nanobind;

void bind_strategies(nb::module_& m);
void bind_plans(nb::module_& m);
void bind_engine(nb::module_& m);

// Raises what Ctrl-C, or another signal, asks for.
inline void raise_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// Raises SystemExit in each call of a strategy of Python that runs now; needs the interpreter's
// lock. A strategy that never returns would keep its engine from ending.
void interrupt(const OpScheduler& strategy);

// Runs `call` without the interpreter's lock.
template <class F>
auto unlocked(F&& call) {
  nb::gil_scoped_release release;
  return call();
}

}  // namespace braid::python
