#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "braid/program/program.h"

namespace braid {

// Writes a Program op by op. Scopes nest while the object that scope() returns lives.
class Builder {
 public:
  Builder(std::string name, const Extents& capacity);
  // Goes on in `scope` with a Program begun by another builder: its ops come first. input, weight
  // and state make new values.
  Builder(Program begun, std::string scope)
      : program_(std::move(begun)), scope_(std::move(scope)) {}

  const Extents& capacity() const { return program_.capacity; }
  const ValueType& type(ValueId id) const { return program_.value(id).type; }

  ValueId input(std::string name, const ValueType& type);
  ValueId weight(std::string name, const ValueType& type);  // once per name, then the same value
  ValueId state(std::string name, const ValueType& type);

  // Appends an op; its output types come from the op's shape rule.
  std::vector<ValueId> op(const OpDef& def, Attrs attrs, std::vector<ValueId> inputs);
  ValueId op1(const OpDef& def, Attrs attrs, std::vector<ValueId> inputs);  // exactly one output

  class Scope {
   public:
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend class Builder;
    Scope(Builder& builder, std::string_view name);
    Builder& builder_;
    size_t length_;
  };
  [[nodiscard]] Scope scope(std::string_view name) { return Scope(*this, name); }

  // Tags the following ops, until the next call.
  void mark(std::string tag) { tag_ = std::move(tag); }

  // Hands over the Program so far, for another builder to continue.
  Program release() { return std::move(program_); }
  // Verifies and hands over the Program.
  Program finish(std::vector<ValueId> outputs);

 private:
  ValueId add(Value value);

  Program program_;
  std::unordered_map<std::string, ValueId> by_name_;  // inputs, weights, states
  std::string scope_;
  std::string tag_;
};

}  // namespace braid
