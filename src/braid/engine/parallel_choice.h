#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "braid/engine/generate.h"
#include "braid/engine/sequence_request.h"

namespace braid {

// How a forward pass is spread over devices, ranks and time, as a user names it. Messages name the
// options of the program.
struct ParallelRequest {
  std::string device = "auto";  // auto, cpu, cuda, cuda:0,1
  EngineConfig engine;          // its device, kv_dtype, links and profile are chosen
  std::string kv_dtype = "auto";
  double link_gbps = 0;  // GB/s on emulated links; 0: as fast as memory
  double link_us = 0;    // their latency
  std::optional<SequenceRequest> sequence;
};

// Listeners for slow work and for remarks; both may be empty.
struct Notes {
  std::function<void(const std::string& line)> say;
  // Called with present work; an empty text marks the end.
  std::function<void(const std::string& what)> progress;
};

struct ParallelChoice {
  EngineConfig engine;
  // Places the user did not name, and slow choices: lines for people.
  std::vector<std::string> remarks;
};

// Chooses devices, the KV cache's dtype, links and profile. Measures this machine if strategy
// `auto` needs a profile and none exists: some ten seconds. Fails with kInvalidArgument, naming the
// option, its value and the limits; like choose_device for an unavailable device.
ParallelChoice choose_parallel(const ParallelRequest& request, const Notes& notes = {});

// Threads of each rank; `engine`'s tp may still be wrong.
int threads_of(const EngineConfig& engine);

// A link slower than that carries no layer in a day.
void require_link_gbps(double gbps);

}  // namespace braid
