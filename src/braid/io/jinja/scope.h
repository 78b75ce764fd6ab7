#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "braid/io/jinja/runtime.h"

namespace braid::jinja {

// The variables of a block, and the enclosing block.
class Scope final : public Object {
 public:
  explicit Scope(const Scope* parent) : parent_(parent) {}

  void set(Runtime& runtime, std::string_view name, std::optional<Value> value) {
    runtime.step(variables_.size() / 8);
    for (auto& variable : variables_) {
      if (variable.first != name) continue;
      variable.second = value;
      return;
    }
    runtime.charge(sizeof(variables_[0]));
    variables_.emplace_back(name, value);
  }

  // Nothing for an undefined name, also if the name is declared and not yet set.
  std::optional<Value> find(Runtime& runtime, std::string_view name) const {
    for (const Scope* scope = this; scope; scope = scope->parent_) {
      runtime.step(1 + scope->variables_.size() / 8);
      for (const auto& variable : scope->variables_) {
        if (variable.first == name) return variable.second;
      }
    }
    return std::nullopt;
  }

  // Whether this scope itself holds a value for the name.
  bool has(std::string_view name) const {
    return std::any_of(variables_.begin(), variables_.end(), [&](const auto& variable) {
      return variable.first == name && variable.second.has_value();
    });
  }

  void clear() { variables_.clear(); }

 private:
  const Scope* parent_;
  std::vector<std::pair<std::string_view, std::optional<Value>>> variables_;
};

}  // namespace braid::jinja
