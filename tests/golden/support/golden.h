#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "golden/support/random_weights.h"

namespace braid::golden {

// What Hugging Face's transformers computes (f32, attention eager) for one prompt.
struct Case {
  std::vector<int32_t> prompt;
  std::vector<float> last;               // logits at the last position of the prompt, [V]
  std::vector<int64_t> inner_positions;  // further positions of the prompt, may be none
  std::vector<float> inner;              // [inner_positions, columns of Golden::column]
  std::vector<int32_t> greedy;           // continuation; the end token does not stop it
  std::vector<float> greedy_logits;      // of each of these tokens, to 4 decimals
  std::vector<float> gaps;               // from it to the second best, to 4 decimals
};

struct Golden {
  int64_t vocab = 0;
  std::vector<int64_t> columns;  // of the logits that Case::inner holds
  double f32_noise = 0;          // relative distance of f32 from f64 on the longest prompt
  // Largest relative distance of a case's last logits, computed on dequantized weights, from those
  // of the unrounded weights; 0 for the exact form.
  double format_error = 0;
  std::vector<Case> cases;
};

// models/<name>/golden.json. form: "exact" for the safetensors folder, else a form of gguf_forms(),
// with the weights rounded, and keys left out, as in that file.
Golden load_golden(const std::string& model, const std::string& form = "exact");

// A model with a random configuration, and the logits [V] after a prompt. configs.json.
struct ConfigCase {
  std::string config;  // config.json
  uint64_t seed = 0;
  std::vector<TensorSpec> tensors;
  std::vector<int32_t> prompt;
  std::vector<float> last;
};

std::vector<ConfigCase> load_config_cases();

// A Qwen2 with small chunks of dual chunk attention (tools/make_dual_chunk_goldens.py, in f64).
struct DualChunkCase {
  std::string config;  // dual_chunk_attention_config
  Case logits;         // without greedy tokens
};
struct DualChunkGolden {
  std::string model;  // whose weights and other configuration it has
  std::vector<int64_t> columns;
  std::vector<DualChunkCase> cases;
};

DualChunkGolden load_dual_chunk_golden();

// The demo model after one prompt.
struct DemoCase {
  std::string text;
  std::vector<int32_t> ids;      // of the text, without a begin token
  std::vector<int32_t> greedy;   // continuation; the end token does not stop it
  std::vector<float> gaps;       // between the two best logits of each step, to 3 decimals
  std::vector<int32_t> top_ids;  // best first, after the last id of the prompt
  std::vector<float> top_logits;
  float log_sum_exp = 0;  // of all logits there: logprob = logit - log_sum_exp
};

// The demo model on demo_text.txt, cut into chunks of `ctx` ids without overlap; what is left over
// at the end is not scored.
struct DemoText {
  std::string text;
  int64_t ids = 0;
  int64_t ctx = 0;
  // [chunks][ctx / 2]: of id ctx/2 + i of the chunk, given the ids before it in the chunk.
  std::vector<std::vector<float>> nll;
  std::vector<double> chunk_perplexity;  // exp(mean(nll)) of each chunk
  double perplexity = 0;                 // of all together
};

struct DemoGolden {
  std::vector<DemoCase> cases;
  DemoText text;
};

DemoGolden load_demo_golden();

// ||x - y|| / ||y||, the distance that format_error and f32_noise are in.
double relative_distance(const std::vector<float>& x, const std::vector<float>& y);

}  // namespace braid::golden
