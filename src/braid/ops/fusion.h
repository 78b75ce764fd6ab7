#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "braid/program/program.h"

namespace braid {

// A fused op that may replace a run of ops. `make` returns the replacement, or nothing when the ops
// at hand do not fit the pattern; it may keep as outputs only values of the ops that it replaces.
struct Fusion {
  std::string_view name;
  std::vector<std::string_view> pattern;  // kinds, in program order
  std::optional<Op> (*make)(const Program& program, std::span<const Op> ops);
};

// The fusions that every backend's catalog may use.
const std::vector<Fusion>& fusions();

// Replaces every run of ops that matches one of `table` and whose inner values nobody else reads.
// Values keep their ids; those that became unused stay in the list and take no memory.
Program fuse(const Program& program, std::span<const Fusion> table);

}  // namespace braid
