#pragma once

#include <string_view>

#include "braid/io/jinja/interpreter.h"

namespace braid::jinja {

// A macro, or the body of a call block: a function from arguments to text. A macro sees the
// variables of its defining block, with their values at the call.
class Macro final : public Instance {
 public:
  Macro(Interpreter& interpreter, const MacroDef& definition, const Scope& scope)
      : interpreter_(interpreter), definition_(definition), scope_(scope) {}

  std::string_view type_name() const override { return "Macro"; }
  bool callable() const override { return true; }
  const Value* attribute(Runtime& runtime, std::string_view name) override;
  Value call(Runtime& runtime, const Args& args) override;

 private:
  // Sets the parameters, those not given to their defaults, evaluated in order.
  void bind(Runtime& runtime, const Args& args, Scope& scope) const;
  void set_defaults(Runtime& runtime, Scope& scope) const;
  Value rest_keywords(Runtime& runtime, const Args& args, bool caller_taken) const;
  std::string_view shown_name() const;

  Interpreter& interpreter_;
  const MacroDef& definition_;
  const Scope& scope_;
  Value name_;
};

}  // namespace braid::jinja
