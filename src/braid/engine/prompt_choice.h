#pragma once

#include <memory>
#include <string>
#include <vector>

#include "braid/engine/prompt_candidate.h"

namespace braid {

// Which of some planners computes a prompt, by its length: chosen as `braid plan prompt` chooses,
// among a rank alone and all ranks in each mode. Lengths that round up to the same power of two, of
// the prompt and of what is cached, share the choice of the first of them.
class PromptChoice {
 public:
  using Planners = std::vector<std::unique_ptr<const ForwardPlanner>>;

  // `planners` come by ranks, and outlive this.
  PromptChoice(const Planners& planners, std::shared_ptr<const OpScheduler> strategy,
               Profile profile);

  // Index of the planner. `alone`: a rank alone may compute it. Costs a simulation of each planner
  // the first time.
  size_t choose(int64_t tokens, int64_t cached, bool alone);

  // A line for each choice so far: each candidate's time.
  std::vector<std::string> explain() const;

 private:
  struct Known {
    int64_t tokens = 0, cached = 0;  // of the first prompt
    std::vector<PromptCandidate> candidates;
  };
  const Known& known(int64_t tokens, int64_t cached);

  const Planners& planners_;
  const std::shared_ptr<const OpScheduler> strategy_;
  const Profile profile_;
  std::vector<Known> known_;
};

}  // namespace braid
