#include "braid/schedule/value_views.h"

#include <algorithm>
#include <numeric>

#include "braid/ops/join_sequence.h"

namespace braid {

std::vector<ValueId> place_owners(const Program& program, int micro_batches) {
  std::vector<ValueId> owner(program.values.size());
  std::iota(owner.begin(), owner.end(), ValueId{0});
  if (micro_batches != 1) return owner;
  const auto moves = [&](ValueId id) {
    return program.value(id).kind == ValueKind::computed &&
           std::ranges::find(program.outputs, id) == program.outputs.end();
  };
  for (const Op& op : program.ops) {
    if (!ops::keeps_place(op) || !moves(op.inputs[0]) || !moves(op.outputs[0])) continue;
    owner[op.outputs[0]] = owner[op.inputs[0]];
  }
  return owner;
}

}  // namespace braid
