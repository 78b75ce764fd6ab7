#include "braid/parallel/experts/token_weights.h"

#include <set>

#include "braid/ops/experts.h"

namespace braid {

int64_t token_weight_bytes(const Program& program) {
  std::set<ValueId> of_experts;
  for (const Op& op : program.ops) {
    if (ops::reads_experts(op)) of_experts.insert(op.inputs.begin(), op.inputs.end());
  }
  const bool tied = !program.find("lm_head");
  int64_t bytes = 0;
  for (size_t id = 0; id < program.values.size(); ++id) {
    const Value& value = program.values[id];
    if (value.kind != ValueKind::weight) continue;
    const int64_t all = bytes_of(value.type);
    if (of_experts.contains(static_cast<ValueId>(id))) {
      bytes += all / value.type.shape[0] * program.expert_rows(1);
    } else {
      bytes += value.name == "token_embd" && !tied ? all / value.type.shape[0] : all;
    }
  }
  return bytes;
}

}  // namespace braid
