#pragma once

#include <string>
#include <vector>

#include "braid/program/program.h"

namespace braid {

// A run of a Program's ops that a scheduler moves as one.
struct Partition {
  std::string_view rule;   // the pattern, kind or tag of the rule; empty: ops between rules
  std::string_view scope;  // scope of the first op
  int begin = 0;           // ops [begin, end)
  int end = 0;
  bool communicates = false;  // every op of the partition is communication
};

// Rules that cut a Program (DynaFlow, section 3.2.1). An op belongs to the first matching rule;
// neighbours with the same rule and instance form a partition, and so does each run without a rule.
class PartitionRules {
 public:
  // Ops in a scope: "layers.*.mlp" is a partition per layer; * stands for a single name.
  void split_module(std::string pattern);
  // Each run of ops with these kinds, in order: {"all_reduce"}, {"linear", "all_reduce"}. Such a
  // run is a separate partition, unless an earlier rule takes an op in the run.
  void split_func(std::vector<std::string> kinds);
  // Ops that the model tagged with Builder::mark().
  void mark(std::string tag);

  // Partitions in program order; together they hold each op once. Their names point into the rules
  // and the program.
  std::vector<Partition> apply(const Program& program) const;

 private:
  enum class Kind : uint8_t { module, func, tag };
  struct Rule {
    Kind kind;
    std::string name;                // pattern, tag, or the kinds joined by '+'
    std::vector<std::string> kinds;  // func: kinds; module: the pattern's names
  };
  // Ops from `begin` on that the rule takes together; 0: none.
  static int taken(const Rule& rule, const Program& program, int begin);
  // An earlier rule takes an op of [begin, end).
  bool claimed(const Rule& rule, const Program& program, int begin, int end) const;

  std::vector<Rule> rules_;
};

// True for ops that ranks do together: such an op has no reference on a single rank's memory.
bool communicates(const Op& op);
// Communication in which a group's ranks wait for each other.
bool collective(const Op& op);

}  // namespace braid
