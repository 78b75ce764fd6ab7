#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace braid {

// Tokens of a rank in a step of a long prompt, at most and at least. An 8B model's activations take
// some 65 KB a token; a rank's products of 2,048 tokens run at full rate.
inline constexpr int64_t kRankTokens = 65536, kLeastRankTokens = 2048;

// The most tokens of a rank in a step, of kRankTokens and its halves down to kLeastRankTokens, with
// which the step takes at most `room` bytes. None: the least do not fit. `bytes` grows with tokens.
std::optional<int64_t> rank_tokens_that_fit(
    double room, const std::function<double(int64_t rank_tokens)>& bytes);

// Tokens in a step of a prompt that `ranks` ranks divide: the most, of these tokens on each rank
// and at most `context`, with which the step takes at most `room` bytes; else the least.
int64_t divided_step(int64_t context, int64_t ranks, double room,
                     const std::function<double(int64_t tokens)>& bytes);

// The most units of `unit` tokens, fewer than `refused` tokens, that take at most `room` bytes, in
// tokens; 0: not a single unit fits. `bytes` grows with tokens, and `refused` tokens do not fit.
int64_t longest_that_fits(double room, int64_t refused, int64_t unit,
                          const std::function<double(int64_t tokens)>& bytes);

}  // namespace braid
