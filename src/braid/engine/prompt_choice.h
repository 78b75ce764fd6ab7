#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "braid/engine/prompt_candidate.h"

namespace braid {

// Chooses, by a prompt's length, the way in which ranks with whole weights compute the prompt, as
// `braid plan prompt` does: a rank alone, the first ranks or all in some mode, or divided products.
// Prompt and cached lengths that round up to equal powers of two share the first choice.
class PromptChoice {
 public:
  using Planners = std::vector<std::unique_ptr<const ForwardPlanner>>;

  // `planners` come by ranks, and outlive this.
  PromptChoice(const Planners& planners, std::shared_ptr<const OpScheduler> strategy,
               Profile profile);

  // Index of the planner; planners.size(): the last planner's plan_weights. `may` says whether the
  // first `ranks` ranks may compute the prompt; all may. Simulates each way at the first call.
  size_t choose(int64_t tokens, int64_t cached, const std::function<bool(int ranks)>& may);

  // A line for each choice so far: each candidate's time, or the reason against it.
  std::vector<std::string> explain() const;

 private:
  struct Known {
    int64_t tokens = 0, cached = 0;  // of the first prompt
    std::vector<PromptCandidate> candidates;
  };
  const Known& known(int64_t tokens, int64_t cached);

  const Planners& planners_;
  const std::shared_ptr<const OpScheduler> strategy_, weights_strategy_;
  const Profile profile_;
  std::vector<Known> known_;
};

}  // namespace braid
