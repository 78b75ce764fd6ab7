#pragma once

#include <string>
#include <vector>

#include "braid/program/program.h"

namespace braid {

// A run of ops of a Program that a scheduler sees as one.
struct Partition {
  std::string_view rule;   // the pattern, kind or tag that cut it out; empty: what lies between
  std::string_view scope;  // of its first op
  int begin = 0;           // ops [begin, end)
  int end = 0;
  bool communicates = false;  // every op of it is communication
};

// How a Program is cut (DynaFlow, section 3.2.1). An op belongs to the first rule that takes it;
// neighbours of one rule and instance are one partition, and so is each run that no rule takes.
class PartitionRules {
 public:
  // Ops in a scope: "layers.*.mlp" is one partition per layer; * stands for one name.
  void split_module(std::string pattern);
  // Each run of ops of these kinds, one after the other: {"all_reduce"}, {"linear", "all_reduce"}.
  // Such a run is a partition of its own; one in which an earlier rule takes an op is none.
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
  // A rule before this one takes an op of [begin, end).
  bool claimed(const Rule& rule, const Program& program, int begin, int end) const;

  std::vector<Rule> rules_;
};

// True for what ranks do together: such an op has no reference that works on one rank's memory.
bool communicates(const Op& op);
// Communication in which the ranks of a group wait for each other.
bool collective(const Op& op);

}  // namespace braid
