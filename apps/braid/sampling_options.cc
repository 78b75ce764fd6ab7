#include "braid/sampling_options.h"

#include "braid/options.h"

namespace braid::app {

void SamplingOptions::add_to(CLI::App& command) {
  const char* const group = "Sampling";
  command
      .add_option("--temperature,--temp", temperature,
                  "0: always the most likely token (default: what the model's makers recommend, "
                  "else 0, in chats 0.7)")
      ->group(group);
  command.add_option("--top-k", top_k, "only the K most likely tokens (0: all)")->group(group);
  command.add_option("--top-p", top_p, "only the most likely tokens of this much probability")
      ->group(group);
  command.add_option("--min-p", min_p, "only tokens at least this likely relative to the best one")
      ->group(group);
  command
      .add_option("--repetition-penalty,--repeat-penalty", repetition_penalty,
                  "above 1: less of what was said")
      ->group(group);
  command.add_option("--frequency-penalty", frequency_penalty, "for each earlier occurrence")
      ->group(group);
  command.add_option("--presence-penalty", presence_penalty, "for tokens that occurred")
      ->group(group);
  command
      .add_option("-s,--seed", seed,
                  "same seed, same text (default: 0, of a chat in the terminal another each time)")
      ->group(group);
  command
      .add_option("--logprobs", logprobs,
                  "log-probability of each token, and of the K most likely ones")
      ->group(group);
}

SamplingParams SamplingOptions::over(SamplingParams p) const {
  if (logprobs) require_between("--logprobs", *logprobs, 0, 1000);
  p.temperature = temperature.value_or(p.temperature);
  p.top_k = top_k.value_or(p.top_k);
  p.top_p = top_p.value_or(p.top_p);
  p.min_p = min_p.value_or(p.min_p);
  p.repetition_penalty = repetition_penalty.value_or(p.repetition_penalty);
  p.frequency_penalty = frequency_penalty.value_or(p.frequency_penalty);
  p.presence_penalty = presence_penalty.value_or(p.presence_penalty);
  p.seed = seed.value_or(p.seed);
  p.logprobs = logprobs.value_or(p.logprobs);
  check(p);
  return p;
}

}  // namespace braid::app
