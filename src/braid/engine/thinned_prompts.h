#pragma once

#include <optional>
#include <string>
#include <vector>

#include "braid/engine/approximation.h"
#include "braid/engine/forward_plans.h"

namespace braid {

// What a planner's prompts so far have left out of their attention.
class ThinnedPrompts {
 public:
  ThinnedPrompts(KeyLevels levels, const MakeForward& model);

  const KeyLevels& levels() const { return levels_; }
  bool any_layer() const;  // thins, among the model's
  // A prompt's tokens, which follow `cached` others.
  void count(const SequenceLayout& q, int64_t cached);
  // The next batch is prepared: last() is none until count().
  void begin() { last_.reset(); }
  // None if nothing was left out.
  std::optional<Approximation> made() const;
  // Of the prompt counted since begin(); none if nothing was left out.
  std::optional<Approximation> last() const;
  // A line for all prompts, and a line for each size, the newest first.
  std::vector<std::string> explain() const;

 private:
  const KeyLevels levels_;
  const std::vector<AttentionLayer> layers_;
  LevelShares shares_;
  std::optional<LevelShares> last_;
  std::vector<std::string> lines_;
};

}  // namespace braid
