#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "braid/engine/requests/scheduler.h"
#include "braid/engine/trace/step_times.h"
#include "braid/parallel/attention/sequence_mesh.h"

namespace braid {

// A way to serve a load.
enum class TracePolicyKind : uint8_t {
  chunked,   // weights divided; chunks of prompts share steps with decodes
  sp,        // tokens of prompts divided; a rank with all keys makes the answer
  sp_apart,  // the same; keys stay where they are, and queries go to them
  sp_levels  // the same with level attention in prompts: approximate
};

struct TracePolicy {
  TracePolicyKind kind = TracePolicyKind::chunked;
  int64_t step_tokens = 0;   // most tokens in a step; for sp a prompt's part per step
  std::vector<double> keep;  // for sp_levels
  std::string name() const;  // "chunked prefill, 256"
};

// Absent devices, divided into equal sets that serve requests apart.
struct TraceCluster {
  std::string config;            // path of a config.json in Hugging Face's form: bf16 weights
  std::string profile = "h200";  // the device's: a name or a .json file
  std::string machines = "1x8";  // [RACKSx]MACHINESxDEVICES, in all
  std::string set = "1x8";       // a set computes each of its steps together
  double memory_gb = 80;         // per device, for weights, keys and activations
  int64_t context = 0;           // tokens of a sequence; 0: the model's
  int64_t max_running = 128;     // requests at once in a set
  std::optional<SpMode> sp;      // of prompts over ranks; none: the fastest at each length
};

// A policy on a cluster, ready to replay a trace: the scheduler's limits in a set, and simulated
// times for the set's steps.
struct SimulatedPolicy {
  TracePolicy policy;
  SchedulerConfig scheduler;
  int sets = 1;
  std::string how;  // "weights divided over 8", "ring over 8", "the fastest mode over 8"
  std::unique_ptr<StepTimes> times;
};

// Steps of divided prompts are as large as an engine's on devices with this memory (StepMemory).
// Fails with kInvalidArgument, naming the option, on sets that do not make up the machines, and as
// read_model_shape and load_profile do; with kResource where weights and a step leave no room.
SimulatedPolicy simulate_policy(const TraceCluster& cluster, const TracePolicy& policy);

}  // namespace braid
