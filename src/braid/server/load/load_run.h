#pragma once

#include <vector>

#include "braid/server/load/load_client.h"
#include "braid/server/load/load_requests.h"

namespace braid::server {

struct LoadRun {
  LoadConfig config;  // with the found model
  WordCost words;
  double seconds = 0;  // from the first request to the last answer
  int64_t most_at_once = 0;
  std::vector<LoadResult> results;  // a result per request, in sending order
};

// Asks the server for its model and how many tokens words have, warms it up, and sends the load.
// Fails with kNotFound where the server does not answer, with kAborted where the first requests
// fail, and as load_requests() does.
LoadRun run_load(const LoadConfig& config);

// The run's numbers, under the names that vLLM's benchmark gives them. `details`: lists with a
// member for each request, too.
Json load_report(const LoadRun& run, bool details);

}  // namespace braid::server
