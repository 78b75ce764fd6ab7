#pragma once

#include <string>

#include "braid/engine/runner.h"
#include "braid/schedule/trace.h"

namespace braid {

// A trace file of a runner's steps (schedule/trace.h), for EngineConfig::on_step and on_loop.
class StepTrace {
 public:
  // Fails with kResource where the file cannot be written.
  explicit StepTrace(const std::string& path) : writer_(path) {}

  // The runner's last step, on `ranks` ranks.
  void add(const Runner& runner, int ranks);
  // Steps run by a device alone, beside the first rank's host.
  void add(const LoopStats& stats);
  // Completes the file, with what `runner`'s prompts left out.
  void finish(const Runner& runner);

 private:
  TraceWriter writer_;
};

// A runner's last step as it was measured.
Timeline measured_timeline(const Runner& runner, int ranks);

}  // namespace braid
