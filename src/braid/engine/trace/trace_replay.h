#pragma once

#include <functional>
#include <span>
#include <vector>

#include "braid/engine/requests/scheduler.h"
#include "braid/engine/trace/step_times.h"
#include "braid/io/trace_file.h"

namespace braid {

// What happened to a request. Times are seconds from the load's begin.
struct ReplayedRequest {
  int64_t input = 0;   // tokens
  int64_t output = 0;  // tokens that were made
  int64_t cached = 0;  // prompt tokens found in the prefix cache
  double arrival = 0;
  double first = 0;  // time of the first token
  double last = 0;
  bool refused = false;  // can never fit: nothing else is set
};

// The times between tokens of an answer, with the prompt's length.
struct TokenGap {
  float seconds = 0;
  bool long_prompt = false;
};

// Steps of a kind.
struct StepSum {
  int64_t steps = 0;
  int64_t tokens = 0;
  double seconds = 0;
};

// Steps of answers alone, and steps with tokens of prompts.
struct StepSums {
  StepSum answers, prompts;
  void add(std::span<const TimedRow> rows, double seconds);
};

struct TraceReplay {
  std::vector<ReplayedRequest> requests;  // in order of arrival
  std::vector<TokenGap> gaps;             // over all answers, in time order
  double seconds = 0;                     // from the first arrival to the last token
  double busy = 0;                        // seconds of steps, summed over sets
  int64_t steps = 0;
  StepSums sums;              // of these steps
  int64_t prompt_tokens = 0;  // computed tokens; the prefix cache's do not count
  int64_t preemptions = 0;
};

struct ReplayConfig {
  SchedulerConfig scheduler;    // each set's
  int sets = 1;                 // sets of ranks with separate requests
  size_t depth = 1;             // steps under way: later ones are chosen before the first ends
  double between = 0;           // seconds of the host before each step
  int64_t long_tokens = 32768;  // a prompt is long from this length on
  std::function<void(double now, const Step& step)> on_step;  // as a step ends; may be empty
};

// Replays a trace without a model: each set of ranks has the server's Scheduler, and computes its
// steps in the times that `times` gives. A request goes to the set with the fewest tokens to
// compute, the lowest among equals, and waits there. Deterministic. Memory grows with the requests
// that have arrived. Fails as the source does.
TraceReplay replay_trace(const TraceSource& source, const ReplayConfig& config, StepTimes& times);

// The prompt of a request as token ids: equal for equal blocks.
std::vector<int32_t> prompt_ids(const TraceRequest& request, int32_t vocabulary);

}  // namespace braid
