#include "braid/schedule/dependencies.h"

#include <algorithm>
#include <map>

namespace braid {
namespace {

// Ops that have touched a value written more than once: a state, or a buffer filled by other
// ops.
struct Accesses {
  std::vector<int> writers;  // all so far
  std::vector<int> since;    // the last writer, then readers
};

void add(std::vector<int>& list, int op) {
  if (std::ranges::find(list, op) == list.end()) list.push_back(op);
}

}  // namespace

bool mutates(const Op& op, size_t index) {
  return std::ranges::count(op.def->mutated_inputs, static_cast<int>(index)) > 0;
}

std::vector<bool> mutable_values(const Program& program) {
  std::vector<bool> result;
  for (const Value& value : program.values) result.push_back(value.kind == ValueKind::state);
  for (const Op& op : program.ops) {
    for (int index : op.def->mutated_inputs) {
      const ValueId id = op.inputs[index];
      if (id != kNoValue) result[id] = true;
    }
  }
  return result;
}

Dependencies dependencies_of(const Program& program) {
  const std::vector<bool> tracked = mutable_values(program);
  Dependencies result;
  result.same.resize(program.ops.size());
  result.continued.resize(program.ops.size());
  std::vector<int> maker(program.values.size(), -1);
  std::vector<Accesses> accesses(program.values.size());
  std::map<BatchAxis, std::vector<int>> over;  // ops over an axis since its extent was written
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const int self = static_cast<int>(i);
    if (op.def->writes_extent != BatchAxis::none) {
      for (int other : over[op.def->writes_extent]) add(result.same[i], other);
      over[op.def->writes_extent].clear();
    }
    for (const auto* operands : {&op.inputs, &op.outputs}) {
      for (ValueId id : *operands) {
        if (id == kNoValue) continue;
        std::vector<int>& list = over[program.value(id).type.axis];
        if (list.empty() || list.back() != self) list.push_back(self);
      }
    }
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      const ValueId id = op.inputs[k];
      if (id == kNoValue) continue;
      const size_t v = id;
      if (maker[v] >= 0) add(result.same[i], maker[v]);
      if (!tracked[v]) continue;
      Accesses& access = accesses[v];
      const bool writes = mutates(op, k);
      if (!writes && program.values[v].kind == ValueKind::state) {
        for (int writer : access.writers) add(result.continued[i], writer);
      }
      for (int other : access.since) {
        const bool conflicts = writes || std::ranges::count(access.writers, other) > 0;
        if (conflicts && other != self) add(result.same[i], other);
      }
      if (writes) {
        access.since = {self};
        access.writers.push_back(self);
      } else {
        access.since.push_back(self);
      }
    }
    for (ValueId id : op.outputs) {
      maker[id] = self;
      accesses[id] = {{self}, {self}};
    }
  }
  return result;
}

}  // namespace braid
