#pragma once

#include "braid/io/jinja/runtime.h"

namespace braid::jinja {

// The result of namespace(): the only object with attributes that a template may set.
class Namespace final : public Instance {
 public:
  explicit Namespace(Dict* entries) : attributes(entries) {}
  std::string_view type_name() const override { return "Namespace"; }
  const Value* attribute(Runtime& runtime, std::string_view name) override;
  void set(Runtime& runtime, std::string_view name, Value value);

  Dict* const attributes;
};

}  // namespace braid::jinja
