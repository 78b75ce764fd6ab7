#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace braid {

// Capacities of a step planned before the first request.
struct StepSize {
  int64_t tokens = 0;
  int64_t sequences = 0;
  int64_t rows = 0;     // of logits
  bool decode = false;  // each sequence has a single token and a single row of logits

  bool holds(int64_t tokens_wanted, int64_t sequences_wanted, int64_t rows_wanted) const {
    return tokens_wanted <= tokens && sequences_wanted <= sequences && rows_wanted <= rows;
  }
  bool operator==(const StepSize&) const = default;
};

// Largest step of a server.
struct StepLimits {
  int64_t sequences = 0;
  int64_t tokens = 0;
  int64_t rows = 0;
  int ranks = 1;  // token capacities above 1 are multiples of `ranks`
};

// The sizes to plan, in order of need. The largest size with prompts and the largest size of
// decodes hold every step. Smaller sizes follow in turns and only save time. Decodes round up by
// half at most; steps with prompts above 256 tokens round up by a quarter at most.
std::vector<StepSize> step_sizes(const StepLimits& limits);

// Index of the smallest sufficient size by tokens. A step with decodes alone prefers sizes for
// decodes.
std::optional<size_t> smallest_that_holds(std::span<const StepSize> sizes, int64_t tokens,
                                          int64_t sequences, int64_t rows, bool decode);

// "9 of decodes (1 to 64 rows), 12 with prompts (64 to 512 tokens)"
std::string describe(std::span<const StepSize> sizes);

}  // namespace braid
