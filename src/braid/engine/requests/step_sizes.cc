#include "braid/engine/requests/step_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "braid/base/math.h"

namespace braid {
namespace {

int64_t power_of_two_below(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n)));
}

// Sizes below `most`, from the largest: powers of two and, above `fine`, some sizes between.
std::vector<int64_t> ladder(int64_t most, int64_t least, int64_t fine, int64_t parts) {
  std::vector<int64_t> sizes = {most};
  while (sizes.back() > least) {
    const int64_t last = sizes.back() - 1, two = power_of_two_below(last);
    const int64_t step = two >= fine ? two / parts : two;
    sizes.push_back(std::max(least, last / step * step));
  }
  return sizes;
}

}  // namespace

std::vector<StepSize> step_sizes(const StepLimits& limits) {
  std::vector<StepSize> prompts, decodes, all;
  const auto whole = [&](int64_t n) {
    return n == 1 ? n : round_up(n, static_cast<int64_t>(limits.ranks));
  };
  for (const int64_t n : ladder(limits.tokens, std::min<int64_t>(64, limits.tokens), 256, 4)) {
    const int64_t tokens = whole(n);
    prompts.push_back(
        {tokens, std::min(limits.sequences, tokens), std::min(limits.rows, tokens), false});
  }
  for (const int64_t n : ladder(limits.sequences, 1, 8, 2)) {
    const int64_t tokens = whole(n);
    if (decodes.empty() || decodes.back().tokens != tokens) {
      decodes.push_back({tokens, tokens, tokens, true});
    }
  }
  for (size_t i = 0; i < std::max(prompts.size(), decodes.size()); ++i) {
    if (i < prompts.size()) all.push_back(prompts[i]);
    if (i < decodes.size()) all.push_back(decodes[i]);
  }
  return all;
}

std::optional<size_t> smallest_that_holds(std::span<const StepSize> sizes, int64_t tokens,
                                          int64_t sequences, int64_t rows, bool decode) {
  std::optional<size_t> best;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].decode && !decode) continue;
    if (!sizes[i].holds(tokens, sequences, rows)) continue;
    const auto rank = [&](size_t j) { return std::pair(!sizes[j].decode, sizes[j].tokens); };
    if (!best || rank(i) < rank(*best)) best = i;
  }
  return best;
}

std::string describe(std::span<const StepSize> sizes) {
  int64_t count[2] = {}, least[2] = {}, most[2] = {};
  for (const StepSize& size : sizes) {
    const int kind = size.decode ? 0 : 1;
    least[kind] = count[kind]++ == 0 ? size.tokens : std::min(least[kind], size.tokens);
    most[kind] = std::max(most[kind], size.tokens);
  }
  return fmt::format("{} of decodes ({} to {} rows), {} with prompts ({} to {} tokens)", count[0],
                     least[0], most[0], count[1], least[1], most[1]);
}

}  // namespace braid
