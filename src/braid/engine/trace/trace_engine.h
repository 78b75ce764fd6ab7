#pragma once

#include "braid/engine/engine.h"
#include "braid/engine/trace/trace_replay.h"

namespace braid {

// An engine's answers to a trace, and the data for repeating the trace without the engine.
struct EngineReplay {
  TraceReplay replay;
  SchedulerConfig scheduler;  // the engine's
  // Seconds of the host between two steps, in the mean; 0 where the host works beside steps.
  double between = 0;
  size_t depth = 1;                          // steps under way
  std::optional<Approximation> approximate;  // of all prompts that left far keys out; none: exact
};

// The rows of an engine's step.
std::vector<TimedRow> timed_rows(const Step& step);

// Submits each request of a trace to an engine as it arrives, and waits for all answers, which have
// the trace's lengths whatever the model says. Fails as the source does, or with the first answer's
// error.
EngineReplay replay_on_engine(Engine& engine, const TraceSource& source, int64_t long_tokens);

}  // namespace braid
