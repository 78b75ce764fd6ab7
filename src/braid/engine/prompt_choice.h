#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "braid/engine/prompt_candidate.h"

namespace braid {

// Of divided products (plan_weights): each rank has the whole residual, or parts of its tokens
// (SP-TP). Keys move beside the computation, unless divided tokens are computed by `sequential`:
// ranks that share a GPU have a single stream in every way.
std::vector<std::shared_ptr<const OpScheduler>> weights_strategies(const OpScheduler& of_tokens);

// Chooses, by a prompt's length, the way in which ranks with whole weights compute the prompt, as
// `braid plan prompt` does: a rank alone, the first ranks or all in some mode, or divided products.
// A way with more than `step_bytes` of a rank's activations is refused, unless all ranks take as
// many in some mode: steps have their length by those (StepMemory). 0: none is.
// Prompts of powers of two are simulated, at the first prompt that needs them; times of lengths
// between are linear, so that no choice depends on earlier prompts. Cached lengths count as the
// nearest power of two. A sequence has at most `most_tokens`.
class PromptChoice {
 public:
  using Planners = std::vector<std::unique_ptr<const ForwardPlanner>>;

  // `planners` come by ranks, and outlive this. `exact`: for prompts that no level thins.
  PromptChoice(const Planners& planners, std::shared_ptr<const OpScheduler> strategy,
               Profile profile, int64_t most_tokens, bool exact = false, int64_t step_bytes = 0);

  // Index of the planner; behind these, of weights_strategies() for the last planner. `may` says
  // whether the first `ranks` ranks may compute the prompt; all may. Plans and simulates each way
  // for at most two powers of two, each once.
  size_t choose(int64_t tokens, int64_t cached, const std::function<bool(int ranks)>& may);

  // Of a way behind the planners.
  const OpScheduler& weights_strategy(size_t way) const {
    return *weights_strategies_[way - planners_.size()];
  }

  // Tokens of the longest of the latest prompts, with those before; 0: there was none.
  int64_t longest() const;

  // A line for each of the latest lengths: each candidate's time, or the reason against it.
  std::vector<std::string> explain() const;

 private:
  struct Priced {
    int64_t tokens = 0, cached = 0;
    std::vector<PromptCandidate> candidates;
  };
  PromptCandidate simulated(size_t way, int64_t tokens, int64_t cached) const;
  const std::vector<PromptCandidate>* find(int64_t tokens, int64_t cached) const;
  // All candidates by simulation.
  const std::vector<PromptCandidate>& at(int64_t tokens, int64_t cached);
  // Candidates near the fastest by simulation, others linear between both lengths.
  const std::vector<PromptCandidate>& halfway(int64_t least, int64_t most, int64_t cached);
  std::vector<PromptCandidate> candidates(int64_t tokens, int64_t cached);
  void refuse_large(std::vector<PromptCandidate>& candidates) const;

  const Planners& planners_;
  const std::shared_ptr<const OpScheduler> strategy_;
  const std::vector<std::shared_ptr<const OpScheduler>> weights_strategies_;
  const Profile profile_;
  const int64_t most_tokens_;
  const bool exact_;
  const int64_t step_bytes_;
  std::list<Priced> priced_;
  std::vector<Priced> latest_;  // lengths, the newest in front
};

}  // namespace braid
