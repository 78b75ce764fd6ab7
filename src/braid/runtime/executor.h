#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "braid/backend/backend.h"
#include "braid/schedule/schedule.h"

namespace braid {

// Finds the memory of a weight or a state by name and local type. Views must outlive the executor.
using Resolver = std::function<TensorView(const Value& value)>;

// Runs a Program's Schedule on a backend. Construction allocates the arena and binds every launch;
// run() then neither allocates nor decides. One thread at a time.
class Executor {
 public:
  // `arena` holds the values, with at least the memory plan's bytes; null: the executor allocates
  // an arena. Executors may share an arena if they run one after another. Fails with kResource if
  // memory does not suffice. The backend must outlive the executor.
  Executor(Program program, Schedule schedule, Backend& backend, const Resolver& resolve,
           std::shared_ptr<DeviceMemory> arena = nullptr);

  const Program& program() const { return program_; }
  const Schedule& schedule() const { return schedule_; }

  // An input to write before run(), by name, in host memory; throws std::logic_error if the
  // Program has no input `name`. Rows of the micro-batches follow each other without gaps.
  const TensorView& input(std::string_view name) const;
  bool has_input(std::string_view name) const { return inputs_.contains(name); }
  // The first `rows` rows of an output after run(), in host memory; the first call may allocate.
  TensorView host_output(size_t index, int64_t rows);
  // An i32 output without a batch axis, as micro-batch `micro_batch` made it in the last run.
  std::vector<int32_t> host_words(ValueId id, int micro_batch);
  // An output or an input in the backend's memory.
  const TensorView& output(size_t index) const { return outputs_.at(index); }
  TensorView device_input(std::string_view name) const;

  // Sets the next run's extents: counts[i] for micro-batch i, within its capacity.
  void set_counts(std::span<const Extents> counts);
  // Prepares the backend for a run with these counts (Replay::prepare).
  void prepare(std::span<const Extents> counts);
  // Runs a step with these counts. Writes each launch's begin and end to `times`, unless empty.
  void run(std::span<const Extents> counts, std::span<LaunchTime> times = {});
  void run(const Extents& extents) { run({&extents, 1}); }

  Replay& replay() { return *replay_; }

 private:
  // A view of a micro-batch's rows in a merged buffer.
  struct Moving {
    size_t view = 0;  // index into views_
    std::byte* base = nullptr;
    int64_t stride = 0;  // bytes per index of dimension 0
    BatchAxis axis = BatchAxis::none;
    size_t part = 0;
  };

  // The value from `micro_batch` on, with room for `capacity`.
  TensorView view(ValueId id, int micro_batch, const Extents& capacity,
                  const Resolver& resolve) const;
  TensorView whole(ValueId id) const { return view(id, 0, program_.capacity, {}); }
  bool merged(ValueId id) const;
  std::vector<InputCopy> stage_inputs();
  void stage_outputs();
  size_t part_index(int first, int count) const;  // of micro-batches

  Program program_;
  Schedule schedule_;
  Backend& backend_;
  std::shared_ptr<DeviceMemory> arena_;
  // Null if the host sees arena_; staged_outputs_ is also null until an output is read.
  std::unique_ptr<DeviceMemory> staged_inputs_, staged_outputs_;
  std::map<std::string, TensorView, std::less<>> inputs_;
  std::vector<TensorView> outputs_;
  std::vector<TensorView> views_;  // operands of all launches
  std::vector<Moving> moving_;
  std::vector<BatchPart> parts_;  // [first micro-batch, how many - 1]
  std::unique_ptr<Replay> replay_;
};

}  // namespace braid
