#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "braid/program/program.h"

namespace braid {

// A fused op that may replace a run of ops. `make` returns the replacement, or nothing for ops
// outside the pattern; outputs may only be values of the replaced ops. A fusion that joins stands
// for ops of different micro-batches; the fused op has the operands of all ops, in order.
struct Fusion {
  std::string_view name;
  std::vector<std::string_view> pattern;  // kinds, in program order
  std::optional<Op> (*make)(const Program& program, std::span<const Op> ops);
  bool joins = false;
};

// The fusions that fuse() applies everywhere: each gains on any backend.
const std::vector<Fusion>& fusions();

// For backends on which a launch costs more than a pass over a few tokens: norm_linear, and
// all_reduce_add_rms_norm. They fit Programs of at most kFewTokens tokens.
constexpr int64_t kFewTokens = 4;
const std::vector<Fusion>& few_token_fusions();

// Fused ops that a strategy asks for by name:
//   linear_all_reduce                         linear of one weight, all_reduce
//   all_reduce_add_rms_norm                   all_reduce, add_rms_norm
//   reduce_scatter_add_rms_norm_all_gather    reduce_scatter, add_rms_norm, all_gather
// (ops/fused_comm.h), those of ops/expert_tiles.h and ops/gated_push.h, and fused ops added by
// libraries. Null for an unknown name. The pointer
// stays valid. Any thread may call find_replacement.
const Fusion* find_replacement(std::string_view name);
std::vector<std::string_view> replacement_names();  // sorted

// Adds a replacement to the process's table, for a call by a user's library when it is loaded,
// before the first strategy runs. Fails with kInvalidArgument on a name that is taken, an empty
// pattern or no `make`. The fusion's strings are copied.
void add_replacement(const Fusion& fusion);

// Readers per value, [values]; each program output counts as a reader.
std::vector<int> count_readers(const Program& program);

// The op that `fusion` puts in place of `run`, neighbours in the program; nothing if the run does
// not fit the pattern, or if another op reads a value that the fused op would not make.
std::optional<Op> fused_op(const Program& program, const Fusion& fusion, std::span<const Op> run,
                           const std::vector<int>& readers);

// Replaces every run of ops that matches `table` and whose inner values have no other reader.
// Values keep their ids; unused values stay in the list and take no memory.
Program fuse(const Program& program, std::span<const Fusion> table);

}  // namespace braid
