#include <algorithm>
#include <string>

#include "bindings/bindings.h"
#include "braid/base/error.h"

namespace braid::python {
namespace {

// braid::Error becomes braid.Error (braid/_error.py), with its code.
void translate(const std::exception_ptr& thrown, void* /*payload*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const nb::object type = nb::module_::import_("braid._error").attr("Error");
    std::string code(to_string(error.code()));
    std::ranges::replace(code, ' ', '_');
    const nb::object value = type(nb::str(error.what()), nb::str(code.c_str()));
    PyErr_SetObject(type.ptr(), value.ptr());
  }
}

}  // namespace
}  // namespace braid::python

NB_MODULE(_braid, m) {
  m.doc() = "What braid's Python files are made of; use the package `braid` instead.";
  m.attr("version") = BRAID_VERSION;
  nanobind::register_exception_translator(braid::python::translate);
  // Programs that end while an engine lives would report objects that they could not end.
  nanobind::set_leak_warnings(false);
  braid::python::bind_strategies(m);
  braid::python::bind_plans(m);
  braid::python::bind_engine(m);
}
