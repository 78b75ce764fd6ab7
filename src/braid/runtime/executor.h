#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "braid/backend/backend.h"
#include "braid/schedule/schedule.h"

namespace braid {

// Finds the memory of a weight or a state by name and local type; the views outlive the executor.
using Resolver = std::function<TensorView(const Value& value)>;

// Runs one Schedule of one Program on a backend. Construction allocates the arena and binds every
// launch; run() then neither allocates nor decides. One thread at a time.
class Executor {
 public:
  // `arena` holds the values, at least as many bytes as the memory plan says; null: memory of its
  // own. Executors that run one after the other may share one. Fails with kResource when memory
  // does not suffice. The backend outlives the executor. `ranks_alike`: as of BoundStep.
  Executor(Program program, Schedule schedule, Backend& backend, const Resolver& resolve,
           std::shared_ptr<DeviceMemory> arena = nullptr, bool ranks_alike = false);

  const Program& program() const { return program_; }
  const Schedule& schedule() const { return schedule_; }

  // An input to write before run(), by name, in the host's memory; throws std::logic_error if the
  // Program has none such. Rows of the micro-batches follow each other without gaps.
  const TensorView& input(std::string_view name) const;
  // The first `rows` rows of an output after run(), in the host's memory, which the first call may
  // allocate.
  TensorView host_output(size_t index, int64_t rows);
  // Where the device keeps an output or an input.
  const TensorView& output(size_t index) const { return outputs_.at(index); }
  TensorView device_input(std::string_view name) const;

  // Says what the next run computes: counts[i] of micro-batch i, within its capacity.
  void set_counts(std::span<const Extents> counts);
  // Lets the backend make what a run of these counts needs (Replay::prepare).
  void prepare(std::span<const Extents> counts);
  // Runs a step of these counts. Writes when each launch ran to `times`, unless it is empty.
  void run(std::span<const Extents> counts, std::span<LaunchTime> times = {});
  void run(const Extents& extents) { run({&extents, 1}); }

  Replay& replay() { return *replay_; }

 private:
  // A view whose rows begin where its micro-batch does in a merged buffer.
  struct Moving {
    size_t view = 0;  // index into views_
    std::byte* base = nullptr;
    int64_t stride = 0;  // bytes of an index of dimension 0
    BatchAxis axis = BatchAxis::none;
    size_t part = 0;
  };

  // The value in the first of some micro-batches, with room for their capacity.
  TensorView view(ValueId id, int micro_batch, const Extents& capacity,
                  const Resolver& resolve) const;
  TensorView whole(ValueId id) const { return view(id, 0, program_.capacity, {}); }
  bool merged(ValueId id) const;
  std::vector<InputCopy> stage_inputs();
  void stage_outputs();
  size_t part_index(const Launch& launch) const;

  Program program_;
  Schedule schedule_;
  Backend& backend_;
  std::shared_ptr<DeviceMemory> arena_;
  // Null where the host sees arena_; of outputs, also until one is read.
  std::unique_ptr<DeviceMemory> staged_inputs_, staged_outputs_;
  std::map<std::string, TensorView, std::less<>> inputs_;
  std::vector<TensorView> outputs_;
  std::vector<TensorView> views_;  // operands of all launches
  std::vector<Moving> moving_;
  std::vector<BatchPart> parts_;  // [first micro-batch, how many - 1]
  std::unique_ptr<Replay> replay_;
};

}  // namespace braid
