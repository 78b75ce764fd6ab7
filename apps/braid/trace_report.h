#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "braid/engine/approximation.h"
#include "braid/engine/trace/trace_summary.h"

namespace braid::app {

// A load that was replayed in a way.
struct TraceResult {
  std::string policy;
  std::string how;
  int sets = 1;
  TraceSummary summary;
  TraceReplay replay;
  double rate = 0;        // requests a second that arrive
  double between = -1;    // seconds of the host between steps, of this machine; below 0: none ran
  double kept_most = -1;  // the highest rate within the limits (--find-rate); below 0: not asked
  std::optional<Approximation> approximate;  // what this machine's prompts left out; none: nothing
};

// Times by length of prompts, rates, and of this machine sums of steps: tables.
std::string trace_tables(const std::vector<TraceResult>& results, int64_t long_tokens);

nlohmann::ordered_json to_json(const TraceResult& result);

}  // namespace braid::app
