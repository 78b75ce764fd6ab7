#include "braid/engine/attention_stages.h"

#include <algorithm>

#include "braid/ops/segment_attention.h"

namespace braid {

std::vector<std::string> attention_stages(const Program& program, const Schedule& schedule) {
  const auto attention = [](std::string_view scope) { return scope.substr(0, scope.rfind('.')); };
  const auto first = std::ranges::find(program.ops, &ops::kSegmentAttention, &Op::def);
  if (first == program.ops.end()) return {};
  std::vector<std::pair<std::string, std::string>> stages;
  for (const Launch& launch : schedule.launches) {
    const Op& op = schedule.op(program, launch);
    if (attention(op.scope) != attention(first->scope) || op.def == &ops::kBuffers) continue;
    auto stage = std::ranges::find(stages, op.scope, &std::pair<std::string, std::string>::first);
    if (stage == stages.end()) stage = stages.insert(stages.end(), {op.scope, ""});
    stage->second += fmt::format("{}{} {}", stage->second.empty() ? "" : ", ",
                                 to_string(launch.stream), op.def->kind);
  }
  std::vector<std::string> lines;
  for (const auto& [scope, what] : stages) lines.push_back(fmt::format("{}: {}", scope, what));
  return lines;
}

}  // namespace braid
