#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "braid/base/error.h"

namespace braid {

// How the next token is chosen. The defaults are greedy.
struct SamplingParams {
  float temperature = 0;         // 0: the most likely token
  int32_t top_k = 0;             // 0: all
  float top_p = 1;               // smallest set of tokens with this much probability
  float min_p = 0;               // tokens at least this likely relative to the most likely one
  float repetition_penalty = 1;  // divides positive and multiplies negative logits of seen tokens
  float frequency_penalty = 0;   // subtracted once for each time a token was generated
  float presence_penalty = 0;    // subtracted once if a token was generated at all
  uint64_t seed = 0;
  int logprobs = -1;  // alternatives to report with each token; -1: no log-probabilities
  std::vector<std::pair<int32_t, float>> logit_bias;  // (id, addend to the id's logit)
};

// Fails with kInvalidArgument naming the parameter, its value and the allowed range.
void check(const SamplingParams& params);

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;  // natural log, of the model's own distribution
};

struct SampledToken {
  int32_t id = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;  // most likely first; ties by id
  // Set by a loop (token_loop.h) whose sequence has ended by an error: the id then means nothing.
  std::optional<Error> error;
};

// Whether a token can be chosen by logits [V]: none is NaN or +inf, and not all are -inf.
bool usable(std::span<const float> logits);

// The most likely token, the first of several, in a single pass over logits [V]; -1 if these are
// not usable.
int32_t most_likely_token(std::span<const float> logits);

// Chooses tokens for one sequence. Deterministic: the same seed and logits give the same tokens.
class Sampler {
 public:
  explicit Sampler(const SamplingParams& params);

  // The next token is the one behind `generated` others: random numbers depend on seed and place.
  void set_place(int64_t generated);

  // Chooses a token. `logits` [V] are usable, and are overwritten. `prompt` and `generated` are the
  // tokens so far, for penalties. Only `allowed` tokens (bit i % 32 in word i / 32; empty: all) are
  // chosen; fails with kInvalidArgument without an allowed token. Log-probabilities follow the
  // model's own distribution.
  SampledToken sample(std::span<float> logits, std::span<const int32_t> prompt,
                      std::span<const int32_t> generated, std::span<const uint32_t> allowed = {});

  // Whether sample() without a mask takes the most likely token and reports nothing else.
  bool takes_most_likely() const {
    return params_.temperature == 0 && params_.logprobs < 0 && plain();
  }

 private:
  void penalize(std::span<float> logits, std::span<const int32_t> prompt,
                std::span<const int32_t> generated) const;
  int32_t draw(std::span<const float> logits);
  double uniform();

  bool plain() const;  // logits stay as the model made them

  SamplingParams params_;
  uint64_t state_;
  std::vector<TokenLogprob> candidates_;  // kept to spare an allocation per token
};

// The message for a mask without a token to choose.
inline constexpr std::string_view kNoTokenAllowed = "the mask of the next token allows none";

// A token that the logits [V] were followed by, with the `count` most likely ones beside.
SampledToken log_probability(std::span<const float> logits, int32_t id, int count);

// log(sum exp(logits)), in f64.
double log_sum_exp(std::span<const float> logits);

}  // namespace braid
