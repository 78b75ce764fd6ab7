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
  // `arena` holds the values, at least as many bytes as the memory plan says; null: the backend's
  // own memory. Fails with kResource when that does not fit.
  Executor(Program program, Schedule schedule, Backend& backend, const Resolver& resolve,
           std::unique_ptr<DeviceMemory> arena = nullptr);

  const Program& program() const { return program_; }
  const Schedule& schedule() const { return schedule_; }

  // An input to write before run(), by name; throws std::logic_error if the Program has none such.
  // Rows of the micro-batches follow each other without gaps.
  const TensorView& input(std::string_view name) const;
  // An output after run(), by its index.
  const TensorView& output(size_t index) const { return outputs_.at(index); }

  // Runs a step: counts[i] of micro-batch i, within its capacity. Writes when each launch ran to
  // `times`, unless it is empty.
  void run(std::span<const Extents> counts, std::span<LaunchTime> times = {});
  void run(const Extents& extents) { run({&extents, 1}); }

 private:
  // A view whose rows begin where its micro-batch does in a merged buffer.
  struct Moving {
    size_t view = 0;  // index into views_
    std::byte* base = nullptr;
    int64_t stride = 0;  // bytes of an index of dimension 0
    BatchAxis axis = BatchAxis::none;
    size_t part = 0;
  };

  TensorView view(ValueId id, int micro_batch, const Resolver& resolve) const;
  size_t part_index(const Launch& launch) const;
  void set_parts(std::span<const Extents> counts);

  Program program_;
  Schedule schedule_;
  std::unique_ptr<DeviceMemory> arena_;
  std::map<std::string, TensorView, std::less<>> inputs_;
  std::vector<TensorView> outputs_;
  std::vector<TensorView> views_;  // operands of all launches
  std::vector<Moving> moving_;
  std::vector<BatchPart> parts_;  // [first micro-batch, how many - 1]
  std::unique_ptr<Replay> replay_;
};

}  // namespace braid
