#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "braid/engine/approximation.h"
#include "braid/engine/batch.h"
#include "braid/engine/expert_load.h"
#include "braid/engine/forward_plans.h"
#include "braid/engine/mesh_choice.h"
#include "braid/engine/thinning.h"
#include "braid/engine/token_loop.h"
#include "braid/engine/world.h"
#include "braid/fabric/link.h"
#include "braid/job/job.h"
#include "braid/model/model.h"

namespace braid {

class Runner;
class StepQueue;
struct ClusterDescription;
struct StepQueueOptions;

struct RunnerConfig {
  DeviceSpec device;
  int tp = 1;                             // all ranks: tensor parallel, or divided as `sp` says
  int ep = 1;                             // sets of ranks that divide experts by number
  int dp = 1;                             // even groups of ranks, each with its own sequences
  int64_t expert_memory = kExpertMemory;  // of a LayoutPlan
  int threads = 1;                        // of each rank
  std::optional<SequenceParallel> sp;     // ranks divide the tokens of a prompt, not the weights
  Thinning thinning;                      // of prompts
  CacheShape cache;
  std::string schedule = "sequential";          // a strategy's name, a library's path, or "auto"
  std::shared_ptr<const OpScheduler> strategy;  // in place of `schedule`; may be null
  fabric::LinkModel links;                      // between emulated machines
  bool mapped = true;              // kernels may store into the memory of their machine's ranks
  std::optional<Profile> profile;  // this machine's, for prices of `auto`
  std::function<void(const Runner&)> on_step;  // after each step, with its times; may be empty
  int64_t deadline_ms = 60000;  // of a wait for another rank; in kernels 10 s at most
  bool communication = true;    // as of WorldConfig
  // The processes that have the ranks, each an equal part; null: all ranks are in this process.
  // Process 0 makes runners and steps, and the others follow (step_records.h).
  job::Job* job = nullptr;
  std::string decode = "auto";  // likewise; on the CPU auto or apart
  bool count_experts = false;   // for expert_loads() and for a step's experts
};

// Whether such a job chooses by simulation: it then needs a profile.
bool needs_profile(const RunnerConfig& config);

// Runs a model's forward passes on all ranks, in this process or over a job's processes. The
// strategy divides a step's batch. Sizes are rounded up to capacities, and Programs and Schedules
// for these capacities are made once and cached.
class Runner {
 public:
  // Fails with kInvalidArgument where the model does not divide over `tp` ranks, saying how far it
  // does, or `sp` has no legal mesh over them, and on an unknown strategy. `model` outlives the
  // runner. In a job fails with kInvalidArgument where ranks do not fit the processes or hosts,
  // with kUnsupported on GPUs.
  Runner(const Model& model, const RunnerConfig& config);
  ~Runner();

  // Computes the batch. The first error of any rank is rethrown and ends the runner: later calls
  // rethrow it. A strategy that is refused fails before anything runs, and ends nothing.
  void step(const Batch& batch);
  // On GPUs the first `pages` pages of the KV cache take memory now, or with the cache's creation:
  // no later step can then lack memory for them. Without this call a step takes its batch's pages,
  // and fails with kResource if a GPU has too little left; the runner stays usable.
  void back_pages(int64_t pages);
  // Whether the runner can take a step: not after a fatal error. In a job each error is fatal.
  bool usable() const;
  // In process 0: logits f32 [R, V] of the last step, in host memory, valid until the next
  // step.
  TensorView logits();
  TensorView run(const Batch& batch) {
    step(batch);
    return logits();
  }
  // Memory on the device that has the logits; may outlive the runner.
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes);
  // The same logits in device memory, valid equally long.
  TensorView device_logits();
  // Copies rows on the device to other device memory, packed.
  void copy(const TensorView& rows, std::byte* to);

  // Goes on after the last step, which computed the last token of each sequence's prompt, in order,
  // and its logits and no others. No other step runs while the loop lives.
  std::unique_ptr<TokenLoop> loop(LoopRequest request);

  // Whether loops and queues sample on the device.
  bool samples_on_device() const;
  // Steps over many sequences that come and go, for a single thread. The runner outlives the queue
  // and computes nothing else meanwhile. Every page of the KV cache takes its memory first, as in
  // back_pages(). On devices that do not divide tokens, plans and captures every step within the
  // options, except of prompts with thinned keys.
  std::unique_ptr<StepQueue> step_queue(const StepQueueOptions& options);

  // The last step's launches, by rank: for people and for traces. `times` need config.on_step. A
  // rank that had no part in it has no program. Ranks of other processes have no executor, and the
  // rest at process 0 alone; their times are by process 0's clock.
  struct Step {
    const Executor* executor = nullptr;
    const Program* program = nullptr;
    const Schedule* schedule = nullptr;
    std::span<const LaunchTime> times;    // [launches]
    std::span<const ExpertRows> experts;  // of launches that count rows, if the config asks
  };
  Step last_step(int rank) const;
  std::span<const Work> last_works() const;  // [micro-batches] of rank 0's group

  // Rows of all steps so far, of all ranks, by layer; empty without a mixture, or if the config
  // does not ask. Steps of a loop on a device do not count.
  std::span<const ExpertLoad> expert_loads() const;

  // Of all prompts so far; none if nothing was left out.
  std::optional<Approximation> approximation() const;
  // Of the last step's prompt, also if nothing was left out; none: a step without levels.
  std::optional<Approximation> last_approximation() const;

  // Plans so far: for `auto` each candidate's price, then each plan in the
  // cache.
  std::vector<std::string> explain() const;

  const ForwardPlanner& planner() const;
  // All inputs of the runner's plans. Fails with kUnsupported for ranks on GPUs, and behind
  // emulated links.
  ClusterDescription cluster() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid
