#include "braid/io/jinja/namespace.h"

#include "braid/io/jinja/operators.h"

namespace braid::jinja {

const Value* Namespace::attribute(Runtime& runtime, std::string_view name) {
  return find(runtime, *attributes, name);
}

void Namespace::set(Runtime& runtime, std::string_view name, Value value) {
  if (name.starts_with('_')) {
    runtime.fail("'{}': a namespace attribute must not begin with an underscore", name);
  }
  insert(runtime, *attributes, runtime.str(std::string(name)), value);
}

}  // namespace braid::jinja
