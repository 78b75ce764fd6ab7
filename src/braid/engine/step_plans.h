#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "braid/engine/batch_cut.h"
#include "braid/engine/forward_plans.h"
#include "braid/schedule/communication_gain.h"
#include "braid/schedule/simulator.h"
#include "braid/schedule/trace.h"

namespace braid {

// A step to plan, on devices that may be absent. Messages name options of `braid plan`.
struct StepRequest {
  std::string model;                       // path of a model, or
  std::string config;                      // of a config.json in Hugging Face's form: bf16 weights
  std::string schedule = "sequential";     // a strategy, its .so file, or auto
  std::shared_ptr<const OpScheduler> own;  // a strategy in place of `schedule`
  std::string profile = "h200";            // of the device: a name or a .json file
  int64_t tokens = 512;                    // of a prompt
  int64_t decodes = 0;                     // sequences with a single token beside the prompt
  int64_t depth = 0;                       // keys that each sequence has in the cache before
  int tp = 1;                              // ranks of tensor parallelism
  int dp = 1;                              // groups of so many ranks, each with such a batch
  int ep = 1;                              // sets of ranks that divide experts by number
  int64_t expert_mib = kExpertMemory >> 20;  // of a LayoutPlan's expert_memory
  std::string sp;        // mode that divides the prompt's tokens: ring, ulysses, ...; empty: none
  std::string machines;  // [RACKSx]MACHINESxDEVICES; empty: one machine
  // Form of a decode step on GPUs, as --decode; empty: each op by itself, priced by the profile.
  std::string decode;
  bool compare = true;  // plan the other strategies that come with Braid, too
};

// A strategy's step: planned for all ranks, and simulated.
struct SimulatedPlan {
  std::shared_ptr<const OpScheduler> strategy;
  BatchCut cut;
  std::vector<Work> works;  // [micro-batches] of each group of ranks
  PlannedForward planned;
  SimulatedStep step;

  const Schedule& schedule() const { return planned.schedules[0]; }
  double wire_bytes() const;  // of all ranks
};

// A step as several strategies run it: planned, verified and simulated, without weights or device.
class StepPlans {
 public:
  // Fails with kInvalidArgument, naming the option, its value and the limits; like Model or
  // read_model_shape on their files; like find_strategy and plan() on a strategy.
  explicit StepPlans(const StepRequest& request);
  ~StepPlans();
  StepPlans(StepPlans&&) noexcept;

  // `sequential` first; includes the requested strategy.
  const std::vector<SimulatedPlan>& plans() const { return plans_; }
  const SimulatedPlan& sequential() const { return plans_[0]; }
  const SimulatedPlan& chosen() const { return plans_[chosen_]; }
  // Seconds of `sequential` with communication without effect.
  double without_communication() const { return without_; }
  CommunicationGain gain_of(const SimulatedPlan& plan) const;
  const Profile& profile() const;
  int ranks() const;

  // The chosen strategy's step. Points into this.
  Timeline timeline() const;
  std::string listing() const;  // a line per launch of rank 0
  std::string experts() const;  // ranks of the experts; empty: the model has no experts
  // The form of a decode step, then its candidates, as --explain prints; empty without `decode`.
  std::vector<std::string> decode() const;
  nlohmann::ordered_json json() const;  // as `braid plan --json` prints

 private:
  struct Planning;

  std::unique_ptr<const Planning> planning_;
  std::vector<SimulatedPlan> plans_;
  size_t chosen_ = 0;
  std::vector<std::string> explanation_;
  double without_ = 0;
};

}  // namespace braid
