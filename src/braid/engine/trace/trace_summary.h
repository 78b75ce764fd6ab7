#pragma once

#include <string>
#include <vector>

#include "braid/engine/trace/trace_replay.h"

namespace braid {

// Seconds.
struct Spread {
  double mean = 0, p50 = 0, p99 = 0;
};
// By nearest rank: the smallest value with at least this per cent at or below; 0 without values.
Spread spread_of(std::vector<double> values);

// Requests of a kind.
struct TraceTimes {
  int64_t requests = 0;
  Spread first;  // TTFT: from arrival to the first token
  Spread gap;    // TBT: between two tokens
  Spread whole;  // E2E: from arrival to the last token
  // Means over requests, in tokens a second: a prompt's tokens over its TTFT; an answer's tokens
  // behind the first over their time.
  double prefill_rate = 0, decode_rate = 0;
};

// Limits within which a request counts as kept; 0: none.
struct TraceLimits {
  double first = 0;  // seconds to the first token
  double gap = 0;    // seconds between two tokens, in the request's mean
};

struct TraceSummary {
  TraceTimes all, brief, long_ones;
  int64_t refused = 0;
  double prefill_rate = 0;  // prompt tokens a second of the run, without the prefix cache's
  double decode_rate = 0;   // answer tokens a second of the run
  double kept = 0;          // share of all requests within the limits
  double kept_rate = 0;     // those a second
  double busy = 0;          // share of the sets' time
  double cached = 0;        // the prefix cache's share of prompt tokens
};

TraceSummary summarize(const TraceReplay& replay, const ReplayConfig& config,
                       const TraceLimits& limits);

}  // namespace braid
