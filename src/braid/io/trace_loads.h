#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "braid/io/trace_file.h"

namespace braid {

// A generated load: independent requests that arrive by a Poisson process.
struct TraceLoad {
  std::string mix = "needlebench";  // as parse_mix takes it
  double rate = 1;                  // requests a second
  int64_t requests = 100;
  uint64_t seed = 1;
};

// Kinds of requests by name, with lengths from publications:
// - needlebench, bookcorpus: lognormal prompts and answers with the medians and 99th percentiles in
//   CSPS (arXiv 2409.15104), prompts up to 1,000,000 tokens;
// - conversation: prompts by the quantiles in Mooncake's conversation trace, answers by its median.
std::vector<std::string> load_names();

// The load's requests, the same for the same seed on every machine. `mix` is a kind, or several
// with shares: conversation=0.95,needlebench=0.05. Fails with kInvalidArgument, naming --load.
TraceSource generated_trace(const TraceLoad& load);

}  // namespace braid
