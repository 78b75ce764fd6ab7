#include "braid/program/program.h"

#include <unordered_set>

namespace braid {
namespace {

std::string operand(const Program& program, ValueId id) {
  if (id == kNoValue) return "-";
  const Value& value = program.value(id);
  return value.kind == ValueKind::computed ? fmt::format("%{}", id) : value.name;
}

std::string line(const Program& program, const Op& op) {
  std::string out;
  for (ValueId id : op.outputs) out += (out.empty() ? "" : ", ") + operand(program, id);
  if (!op.outputs.empty()) out += " = ";
  out += fmt::format("{}(", op.def->kind);
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    out += (i ? ", " : "") + operand(program, op.inputs[i]);
  }
  out += ")";
  if (const std::string attrs = to_string(op.attrs); !attrs.empty()) out += " {" + attrs + "}";
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    out += (i ? ", " : " : ") + to_string(program.value(op.outputs[i]).type);
  }
  if (!op.scope.empty()) out += "  # " + op.scope;
  return out;
}

void fill_types(const Program& program, const std::vector<ValueId>& ids, const Extents& part,
                std::vector<ValueType>& result) {
  result.clear();
  result.reserve(ids.size());
  for (ValueId id : ids) result.push_back(program.type_of(id, part));
}

std::vector<ValueType> types(const Program& program, const std::vector<ValueId>& ids,
                             const Extents& part) {
  std::vector<ValueType> result;
  fill_types(program, ids, part, result);
  return result;
}

}  // namespace

std::optional<ValueId> Program::find(std::string_view value_name) const {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].name == value_name) return static_cast<ValueId>(i);
  }
  return std::nullopt;
}

ValueType Program::type_of(ValueId id, const Extents& part) const {
  if (id == kNoValue) return {};
  ValueType type = value(id).type;
  if (type.axis == BatchAxis::none) return type;
  // A batch has one more start of sequences than sequences.
  const int64_t more = type.shape[0] - capacity.of(type.axis, 0);
  type.shape[0] = part.of(type.axis, 0) + more;
  return type;
}

std::vector<ValueType> Program::input_types(const Op& op, const Extents& part) const {
  return types(*this, op.inputs, part);
}

std::vector<ValueType> Program::output_types(const Op& op, const Extents& part) const {
  return types(*this, op.outputs, part);
}

Cost Program::cost(const Op& op, const Work& work) const {
  return op.def->cost(op.attrs, input_types(op), output_types(op), work);
}

std::string to_string(const Program& program) {
  std::string out =
      fmt::format("program {} (token {}, sequence {}, row {})\n", program.name,
                  program.capacity.token, program.capacity.sequence, program.capacity.row);
  for (const Op& op : program.ops) out += "  " + line(program, op) + "\n";
  out += "  return";
  for (ValueId id : program.outputs) out += " " + operand(program, id);
  return out + "\n";
}

void verify(const Program& program) {
  const auto count = static_cast<ValueId>(program.values.size());
  std::vector<bool> made(program.values.size());
  std::unordered_set<std::string_view> names;
  for (ValueId id = 0; id < count; ++id) {
    const Value& value = program.value(id);
    made[id] = value.kind != ValueKind::computed;
    if (value.kind == ValueKind::computed) continue;
    BRAID_CHECK(!value.name.empty() && names.insert(value.name).second,
                "value {} has no name of its own: '{}'", id, value.name);
  }
  std::vector<ValueType> in, out;  // of an op: memory for all ops
  for (const Op& op : program.ops) {
    const auto where = [&] { return line(program, op); };
    BRAID_CHECK(op.def != nullptr);
    for (ValueId id : op.inputs) {
      if (id == kNoValue) continue;
      BRAID_CHECK(0 <= id && id < count, "op {} reads value {}", op.def->kind, id);
      BRAID_CHECK(made[id], "%{} is read before it is made: {}", id, where());
    }
    for (ValueId id : op.outputs) {
      BRAID_CHECK(0 <= id && id < count, "op {} makes value {}", op.def->kind, id);
      BRAID_CHECK(!made[id], "%{} is made twice: {}", id, where());
      made[id] = true;
    }
    for (int index : op.def->mutated_inputs) {
      const ValueId id = op.inputs.at(index);
      if (id == kNoValue) continue;
      const ValueKind kind = program.value(id).kind;
      BRAID_CHECK(kind == ValueKind::state || kind == ValueKind::computed,
                  "{} writes an input or a weight: {}", op.def->kind, where());
    }
    fill_types(program, op.inputs, program.capacity, in);
    fill_types(program, op.outputs, program.capacity, out);
    BRAID_CHECK(op.def->infer(op.attrs, in) == out, "output types differ from the shape rule: {}",
                where());
  }
  for (ValueId id : program.outputs) {
    BRAID_CHECK(0 <= id && id < count && made[id], "output %{} is not made", id);
  }
}

}  // namespace braid
