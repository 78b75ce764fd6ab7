#pragma once

#include <string>
#include <vector>

#include "braid/ops/kernel_catalog.h"
#include "braid/program/beside.h"
#include "braid/program/program.h"
#include "braid/program/wait.h"
#include "braid/schedule/micro_batch.h"

namespace braid {

// An op of a micro-batch.
struct BatchOp {
  int op = 0;  // index into Program::ops
  int micro_batch = 0;
  bool operator==(const BatchOp&) const = default;
};

// A unit of execution: an op, or neighbouring ops replaced by a fused op, for a micro-batch or for
// adjacent micro-batches together; or ops of several micro-batches joined in a fused op.
struct Launch {
  int op = 0;            // index into Program::ops, the first one
  int num_ops = 1;       // more than one only with a replacement
  int replacement = -1;  // index into Schedule::replacements
  int micro_batch = 0;   // the first one
  int num_micro_batches = 1;
  // Further ops that the fused op stands for, mostly of other micro-batches. No op of the launch
  // waits for another. The fused op has the operands of all, in order.
  std::vector<BatchOp> joined;
  Stream stream = Stream::compute;
  // Waits for launches of other streams, in phase order; partial waits come last in their phase. A
  // backend may wait for everything before the launch begins.
  std::vector<Wait> waits;
  Beside beside;  // other streams' launches that may run meanwhile
  KernelInfo kernel;

  int op_end() const { return op + num_ops; }
  int micro_batch_end() const { return micro_batch + num_micro_batches; }
  // Calls f(op, micro-batch) for each of the Program's ops that the launch stands for.
  template <class F>
  void for_each_op(F&& f) const {
    for (int o = op; o < op_end(); ++o) {
      for (int mb = micro_batch; mb < micro_batch_end(); ++mb) f(o, mb);
    }
    for (const BatchOp& other : joined) f(other.op, other.micro_batch);
  }
  // The last phase that begins with a wait; 0: no waits while the launch runs.
  int last_phase() const;
  // Waits for a part of the results of `launch`, which may still run when this launch begins.
  bool takes_part_of(int launch) const;
};

// Offsets of values in an arena. A value shared by several micro-batches in a launch, or an input
// or output, is merged: a buffer of the batch's capacity, in which each micro-batch owns its rows.
// Any other value has a separate place in each micro-batch.
struct MemoryPlan {
  static constexpr int64_t kAlignment = 64;
  int micro_batches = 1;
  std::vector<int64_t> value_offset;      // [values, micro_batches]; -1: not in the arena
  std::vector<bool> merged;               // [values]
  std::vector<int64_t> workspace_offset;  // [launches]; -1: none
  int64_t arena_bytes = 0;
  // Most bytes live at once if launches run one at a time in recorded order: no arena is smaller.
  // Concurrent streams may keep more.
  int64_t live_bytes = 0;

  int64_t offset(ValueId value, int micro_batch) const {
    return value_offset[(static_cast<size_t>(value) * static_cast<size_t>(micro_batches)) +
                        static_cast<size_t>(micro_batch)];
  }
};

// Time and place of each op in a rank's Program: data that is made once per context key, verified
// over all ranks, and replayed.
struct Schedule {
  std::string strategy;
  std::vector<MicroBatch> micro_batches;
  std::vector<Op> replacements;
  std::vector<Launch> launches;  // in recorded order; each stream runs its launches in this order
  std::vector<LaunchGroup> groups = {};  // in order, of two launches or more; a run that times
                                         // each launch may launch members apart
  MemoryPlan memory;

  const Op& op(const Program& program, const Launch& launch) const {
    return launch.replacement >= 0 ? replacements[launch.replacement] : program.ops[launch.op];
  }
  // What a device launches: a group counts once.
  int num_launches() const;
  // The group of a launch, or null.
  const LaunchGroup* group_of(int launch) const;
  // Calls f(op, index of its first op in the Program, micro-batch) for each use of operands: the
  // launch's op in each micro-batch, or each of the joined ops.
  template <class F>
  void for_each_call(const Program& program, const Launch& launch, F&& f) const {
    if (launch.joined.empty()) {
      for (int mb = launch.micro_batch; mb < launch.micro_batch_end(); ++mb) {
        f(op(program, launch), launch.op, mb);
      }
      return;
    }
    launch.for_each_op([&](int o, int mb) { f(program.ops[static_cast<size_t>(o)], o, mb); });
  }
  // Capacity of `count` micro-batches from the first one on.
  Extents capacity(const Program& program, int first, int count) const;
  // Capacity of a launch's micro-batches; the most of each axis where ops are joined.
  Extents capacity(const Program& program, const Launch& launch) const;
};

std::string micro_batches_of(const Launch& launch);  // "0", "0-1"; of joined ops "0+1"

// One line per launch, members of a group below the group's line, then the arena.
std::string to_string(const Schedule& schedule, const Program& program);

// Equal for equal Schedules: launches, streams, waits, replacements, groups, offsets. Processes of
// a job compare hashes before a plan's first use.
uint64_t hash_of(const Schedule& schedule);

}  // namespace braid
