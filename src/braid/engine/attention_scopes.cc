#include "braid/engine/attention_scopes.h"

#include <algorithm>

#include "braid/ops/segment_attention.h"

namespace braid {

std::vector<std::string> attention_scopes(const Program& program, const Schedule& schedule) {
  const auto attention = [](std::string_view scope) { return scope.substr(0, scope.rfind('.')); };
  const auto first = std::ranges::find(program.ops, &ops::kSegmentAttention, &Op::def);
  if (first == program.ops.end()) return {};
  std::vector<std::pair<std::string, std::string>> scopes;
  for (const Launch& launch : schedule.launches) {
    const Op& op = schedule.op(program, launch);
    if (attention(op.scope) != attention(first->scope) || op.def == &ops::kBuffers) continue;
    auto part = std::ranges::find(scopes, op.scope, &std::pair<std::string, std::string>::first);
    if (part == scopes.end()) part = scopes.insert(scopes.end(), {op.scope, ""});
    part->second += fmt::format("{}{} {}", part->second.empty() ? "" : ", ",
                                to_string(launch.stream), op.def->kind);
  }
  std::vector<std::string> lines;
  for (const auto& [scope, what] : scopes) lines.push_back(fmt::format("{}: {}", scope, what));
  return lines;
}

}  // namespace braid
