#pragma once

#include <optional>
#include <span>
#include <string>

#include "braid/engine/forward_plans.h"
#include "braid/parallel/attention/level_shares.h"
#include "braid/schedule/simulator.h"

namespace braid {

// How the ranks of a candidate share a prompt.
enum class PromptDivision : uint8_t {
  whole,    // one rank computes all
  weights,  // tensor parallelism
  tokens,   // sequence parallelism: each rank has whole weights
};

// The ranks that may share a prompt, neighbours first: one; a part of a machine, which divides a
// machine of more than kUnevenDevices; several whole machines of one rack; several whole racks.
inline constexpr int kUnevenDevices = 16;
std::vector<Topology> parts_of(const Topology& all);

// Memory of a rank in a step.
struct StepBytes {
  double weights = 0, keys = 0, activations = 0;
  double all() const { return weights + keys + activations; }
};

// Of the fullest rank.
StepBytes step_bytes(const PlannedForward& planned);

// Whether a step of `tokens` tokens leaves keys out: levels exist, and each part has a token.
bool thins(const std::optional<KeyLevels>& levels, int64_t tokens);

// The reason why `ranks` GPUs, each with its share of a prompt's parts, cannot thin the prompt: a
// kernel takes kMostThinnedParts. Empty for CPUs, for few parts and where nothing is thinned.
std::string too_many_parts(const std::optional<KeyLevels>& levels, int64_t tokens, int ranks,
                           const Profile& profile);

// A way to compute the prompt.
struct PromptCandidate {
  PromptDivision division = PromptDivision::whole;
  Topology topology;                 // its ranks; neighbours first
  std::optional<SequenceMesh> mesh;  // of `tokens`
  std::string strategy;
  double seconds = 0;     // simulated time to the first token
  StepBytes bytes;        // of the fullest rank and step
  double wire_bytes = 0;  // of all ranks
  double rack_bytes = 0;  // of these, between racks
  int steps = 1;
  int64_t rank_tokens = 0;   // in a step, at most
  LevelShares shares;        // of plan_prompt: pairs and far keys that attention reads
  double token_seconds = 0;  // simulated, of a token behind the prompt; 0: unknown
  std::string refused;       // reason against the candidate; empty: none

  int ranks() const { return topology.ranks(); }
  // Adds a later step.
  void add(const PromptCandidate& step);
  std::string name() const;  // "tokens divided, torus (torus 2 x ulysses 4 x ring 1)"
};

// A step or length at `part` of the way between those of `a` and `b`: time, sent bytes
// and pairs are linear, all else is b's.
PromptCandidate between(const PromptCandidate& a, const PromptCandidate& b, double part);

// The candidate with the least simulated time among those without a reason against them, by index.
// One with fewer ranks that takes at most kPromptTie longer wins: free ranks serve other prompts.
// None: each is refused. Candidates come by ranks.
inline constexpr double kPromptTie = 0.03;
std::optional<size_t> choose_candidate(std::span<const PromptCandidate> candidates);

// Writes a simulated step's time and bytes.
void measure(PromptCandidate& made, const PlannedForward& planned, const SimulatedStep& step);

// A plan of a prompt's step with `tokens` tokens behind `cached` others, on the planner's mesh.
// `exact` as in plan_tokens, likewise below.
PlannedForward plan_prompt_step(const ForwardPlanner& planner, const OpScheduler& strategy,
                                int64_t tokens, int64_t cached, const CostModel* cost = nullptr,
                                bool exact = false);

// Plans and simulates a prompt with `tokens` tokens behind `cached` others on the planner's mesh (a
// mesh of a single rank: undivided).
PromptCandidate tokens_candidate(const ForwardPlanner& planner, const OpScheduler& strategy,
                                 int64_t tokens, int64_t cached, const CostModel& cost,
                                 bool exact = false);

// The same with products divided over the planner's ranks, out of whole weights (divided_prompt).
// Refused where keys lie in caches already, by too_many_parts, and by the errors of divided_prompt
// and thin_far_keys.
PromptCandidate weights_candidate(const ForwardPlanner& planner, const OpScheduler& strategy,
                                  int64_t tokens, int64_t cached, const CostModel& cost,
                                  bool exact = false);

// A step of a sequence that each rank has whole, by the strategy with the least simulated time. The
// planner has no mesh: its ranks divide weights. Not `exact`: far keys are thinned by the planner's
// levels, as TensorRanks plans a prompt.
PromptCandidate batch_candidate(const ForwardPlanner& planner, int64_t tokens, int64_t cached,
                                const CostModel& cost, bool exact = true);

}  // namespace braid
