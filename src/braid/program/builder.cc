#include "braid/program/builder.h"

namespace braid {

Builder::Builder(std::string name, const Extents& capacity) {
  program_.name = std::move(name);
  program_.capacity = capacity;
}

ValueId Builder::add(Value value) {
  const auto id = static_cast<ValueId>(program_.values.size());
  if (!value.name.empty()) by_name_.emplace(value.name, id);
  program_.values.push_back(std::move(value));
  return id;
}

ValueId Builder::input(std::string name, const ValueType& type) {
  return add({ValueKind::input, type, std::move(name)});
}

ValueId Builder::weight(std::string name, const ValueType& type) {
  if (const auto known = by_name_.find(name); known != by_name_.end()) return known->second;
  return add({ValueKind::weight, type, std::move(name)});
}

ValueId Builder::state(std::string name, const ValueType& type) {
  return add({ValueKind::state, type, std::move(name)});
}

std::vector<ValueId> Builder::op(const OpDef& def, Attrs attrs, std::vector<ValueId> inputs) {
  Op op{&def, std::move(attrs), std::move(inputs), {}, scope_, tag_};
  for (const ValueType& type : def.infer(op.attrs, program_.input_types(op))) {
    op.outputs.push_back(add({ValueKind::computed, type, ""}));
  }
  program_.ops.push_back(op);
  return op.outputs;
}

ValueId Builder::op1(const OpDef& def, Attrs attrs, std::vector<ValueId> inputs) {
  const std::vector<ValueId> outputs = op(def, std::move(attrs), std::move(inputs));
  BRAID_CHECK(outputs.size() == 1, "{} makes {} values", def.kind, outputs.size());
  return outputs[0];
}

Builder::Scope::Scope(Builder& builder, std::string_view name)
    : builder_(builder), length_(builder.scope_.size()) {
  if (!builder.scope_.empty()) builder.scope_ += '.';
  builder.scope_ += name;
}

Builder::Scope::~Scope() {
  builder_.scope_.resize(length_);
}

Program Builder::finish(std::vector<ValueId> outputs) {
  program_.outputs = std::move(outputs);
  verify(program_);
  return std::move(program_);
}

}  // namespace braid
