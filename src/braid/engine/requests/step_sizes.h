#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace braid {

// Capacities of a step that is planned before any request comes.
struct StepSize {
  int64_t tokens = 0;
  int64_t sequences = 0;
  int64_t rows = 0;     // of logits
  bool decode = false;  // one token of each sequence, whose logits are wanted

  bool holds(int64_t tokens_wanted, int64_t sequences_wanted, int64_t rows_wanted) const {
    return tokens_wanted <= tokens && sequences_wanted <= sequences && rows_wanted <= rows;
  }
  bool operator==(const StepSize&) const = default;
};

// What steps of a server can need.
struct StepLimits {
  int64_t sequences = 0;
  int64_t tokens = 0;
  int64_t rows = 0;
  int ranks = 1;  // capacities of tokens are multiples of these, but for one token alone
};

// The sizes to plan, the most needed first: the largest with prompts and the largest of decodes,
// which together hold every step; then smaller ones, which only save time, in turns. Decodes round
// up by half at most, steps with prompts by a quarter above 256 tokens.
std::vector<StepSize> step_sizes(const StepLimits& limits);

// Index of the size with the fewest tokens that holds the step. A step of decodes alone takes one
// of decodes where it can.
std::optional<size_t> smallest_that_holds(std::span<const StepSize> sizes, int64_t tokens,
                                          int64_t sequences, int64_t rows, bool decode);

// "9 of decodes (1 to 64 rows), 12 with prompts (64 to 512 tokens)"
std::string describe(std::span<const StepSize> sizes);

}  // namespace braid
