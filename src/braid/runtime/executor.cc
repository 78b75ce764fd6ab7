#include "braid/runtime/executor.h"

namespace braid {

Executor::Executor(Program program, Schedule schedule, Backend& backend, const Resolver& resolve)
    : program_(std::move(program)),
      schedule_(std::move(schedule)),
      arena_(backend.allocate(schedule_.memory.arena_bytes)) {
  for (size_t id = 0; id < program_.values.size(); ++id) {
    const Value& value = program_.values[id];
    if (value.kind == ValueKind::input) inputs_[value.name] = view(static_cast<ValueId>(id), {});
  }
  for (ValueId id : program_.outputs) outputs_.push_back(view(id, {}));
  std::vector<BoundOp> launches;
  for (size_t i = 0; i < schedule_.launches.size(); ++i) {
    const Op& op = program_.ops[static_cast<size_t>(schedule_.launches[i].op)];
    BoundOp bound{.op = &op};
    for (ValueId id : op.inputs) bound.in.push_back(view(id, resolve));
    for (ValueId id : op.outputs) bound.out.push_back(view(id, resolve));
    bound.axis = program_.value(op.inputs[0]).type.axis;
    if (const int64_t offset = schedule_.memory.workspace_offset[i]; offset >= 0) {
      bound.workspace = arena_->data() + offset;
    }
    launches.push_back(std::move(bound));
  }
  replay_ = backend.bind(std::move(launches));
}

TensorView Executor::view(ValueId id, const Resolver& resolve) const {
  if (id == kNoValue) return {};
  const Value& value = program_.value(id);
  if (value.kind == ValueKind::weight || value.kind == ValueKind::state) return resolve(value);
  const int64_t offset = schedule_.memory.value_offset[static_cast<size_t>(id)];
  BRAID_CHECK(offset >= 0, "%{} has no place in the arena", id);
  return make_view(arena_->data() + offset, value.type.dtype, value.type.shape);
}

const TensorView& Executor::input(std::string_view name) const {
  const auto it = inputs_.find(name);
  BRAID_CHECK(it != inputs_.end(), "no input '{}'", name);
  return it->second;
}

void Executor::run(const Extents& extents) {
  const Extents& capacity = program_.capacity;
  BRAID_CHECK(extents.token <= capacity.token && extents.sequence <= capacity.sequence &&
                  extents.row <= capacity.row,
              "token {}, sequence {}, row {} over the capacity", extents.token, extents.sequence,
              extents.row);
  replay_->run(extents);
}

}  // namespace braid
