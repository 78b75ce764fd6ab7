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
  // Fails with kResource when the arena does not fit.
  Executor(Program program, Schedule schedule, Backend& backend, const Resolver& resolve);

  const Program& program() const { return program_; }
  const Schedule& schedule() const { return schedule_; }

  // An input to write before run(), by name; throws std::logic_error if the Program has none such.
  const TensorView& input(std::string_view name) const;
  // An output after run(), by its index.
  const TensorView& output(size_t index) const { return outputs_.at(index); }

  // Runs the step over extents within the Program's capacity.
  void run(const Extents& extents);

 private:
  TensorView view(ValueId id, const Resolver& resolve) const;

  Program program_;
  Schedule schedule_;
  std::unique_ptr<DeviceMemory> arena_;
  std::map<std::string, TensorView, std::less<>> inputs_;
  std::vector<TensorView> outputs_;
  std::unique_ptr<Replay> replay_;
};

}  // namespace braid
