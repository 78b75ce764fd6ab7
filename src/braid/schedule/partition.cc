#include "braid/schedule/partition.h"

#include <algorithm>

namespace braid {
namespace {

std::vector<std::string> split_at_dots(std::string_view text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t dot = std::min(text.find('.', at), text.size());
    parts.emplace_back(text.substr(at, dot - at));
    at = dot + 1;
  }
  return parts;
}

// The leading part of `scope` that matches the pattern, or an empty view.
std::string_view matched_prefix(const std::vector<std::string>& pattern, std::string_view scope) {
  size_t at = 0;
  for (const std::string& name : pattern) {
    if (at > scope.size() || scope.empty()) return {};
    const size_t dot = std::min(scope.find('.', at), scope.size());
    if (name != "*" && name != scope.substr(at, dot - at)) return {};
    at = dot + 1;
  }
  return scope.substr(0, at - 1);
}

}  // namespace

bool communicates(const Op& op) {
  return op.def->reference == nullptr;
}

bool collective(const Op& op) {
  return communicates(op) && !op.def->one_sided;
}

void PartitionRules::split_module(std::string pattern) {
  auto names = split_at_dots(pattern);
  rules_.push_back({Kind::module, std::move(pattern), std::move(names)});
}

void PartitionRules::split_func(std::vector<std::string> kinds) {
  std::string name;
  for (const std::string& kind : kinds) name += (name.empty() ? "" : "+") + kind;
  rules_.push_back({Kind::func, std::move(name), std::move(kinds)});
}

void PartitionRules::mark(std::string tag) {
  rules_.push_back({Kind::tag, std::move(tag), {}});
}

int PartitionRules::taken(const Rule& rule, const Program& program, int begin) {
  const std::span<const Op> ops = std::span(program.ops).subspan(begin);
  switch (rule.kind) {
    case Kind::module:
      return matched_prefix(rule.kinds, ops[0].scope).empty() ? 0 : 1;
    case Kind::tag:
      return ops[0].tag == rule.name ? 1 : 0;
    case Kind::func: {
      const auto same = [](const Op& op, const std::string& kind) { return op.def->kind == kind; };
      const bool all = ops.size() >= rule.kinds.size() &&
                       std::equal(rule.kinds.begin(), rule.kinds.end(), ops.begin(),
                                  [&](const std::string& k, const Op& op) { return same(op, k); });
      return all ? static_cast<int>(rule.kinds.size()) : 0;
    }
  }
  return 0;
}

bool PartitionRules::claimed(const Rule& rule, const Program& program, int begin, int end) const {
  for (int i = begin; i < end; ++i) {
    for (const Rule* earlier = rules_.data(); earlier != &rule; ++earlier) {
      if (taken(*earlier, program, i) > 0) return true;
    }
  }
  return false;
}

std::vector<Partition> PartitionRules::apply(const Program& program) const {
  std::vector<Partition> partitions;
  const Rule* last_rule = nullptr;
  std::string_view last_instance;
  for (int i = 0; i < static_cast<int>(program.ops.size());) {
    const Op& op = program.ops[i];
    const Rule* rule = nullptr;
    int count = 1;
    for (const Rule& candidate : rules_) {
      const int n = taken(candidate, program, i);
      if (n == 0 || claimed(candidate, program, i + 1, i + n)) continue;
      rule = &candidate;
      count = n;
      break;
    }
    std::string_view instance;
    if (rule != nullptr && rule->kind == Kind::module) {
      instance = matched_prefix(rule->kinds, op.scope);
    }
    const bool joins = !partitions.empty() && rule == last_rule && instance == last_instance &&
                       (rule == nullptr || rule->kind != Kind::func);
    if (!joins) {
      partitions.push_back(
          {rule ? std::string_view(rule->name) : std::string_view(), op.scope, i, i, true});
    }
    for (int j = i; j < i + count; ++j) {
      partitions.back().communicates &= communicates(program.ops[j]);
    }
    i += count;
    partitions.back().end = i;
    last_rule = rule;
    last_instance = instance;
  }
  return partitions;
}

}  // namespace braid
