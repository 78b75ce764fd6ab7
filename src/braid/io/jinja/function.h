#pragma once

#include <functional>
#include <string>
#include <utility>

#include "braid/io/jinja/runtime.h"

namespace braid::jinja {

// A callable built from a C++ function: global functions and bound methods.
class Function final : public Instance {
 public:
  using Body = std::function<Value(Runtime&, const Args&)>;
  Function(std::string name, Body body) : name_(std::move(name)), body_(std::move(body)) {}
  std::string_view type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Value call(Runtime& runtime, const Args& args) override { return body_(runtime, args); }

 private:
  std::string name_;
  Body body_;
};

}  // namespace braid::jinja
