#pragma once

#include <random>
#include <string>
#include <vector>

#include "braid/server/load/load_config.h"

namespace braid::server {

struct LoadRequest {
  Json prompt;             // a text, or a list of messages
  int64_t output_len = 0;  // max_tokens
};

// How a server's tokenizer counts prompts of words: tokens = base + words * per_word.
struct WordCost {
  double base = 0;
  double per_word = 1;

  // Words for a prompt with about `tokens` tokens, at least one word.
  int64_t words(int64_t tokens) const;
};

// `count` common words, each a single token in most vocabularies.
std::string random_words(std::mt19937_64& random, int64_t count);

// The requests of a run, the same ones for the same seed. Fails with kNotFound or kMalformed,
// naming file and line, where a JSONL file is not there or holds something else.
std::vector<LoadRequest> load_requests(const LoadConfig& config, const WordCost& cost);

// When each request is sent, seconds from the run's begin; all 0 without a rate.
std::vector<double> arrival_times(const LoadConfig& config);

// The body of a request; every answer is a stream.
Json load_body(const LoadConfig& config, const LoadRequest& request);

}  // namespace braid::server
