#pragma once

#include <string>
#include <vector>

#include "braid/ops/linear.h"
#include "braid/ops/rope.h"

namespace braid {

// The hyper-parameters of a dense decoder, whichever file they came from.
struct ModelConfig {
  std::string family;  // "llama", "mistral", "qwen2", "qwen3"
  std::string name;    // as the file calls the model; may be empty
  int64_t layers = 0;
  int64_t C = 0;        // model width
  int64_t F = 0;        // feed-forward width
  int64_t V = 0;        // vocabulary
  int64_t Hq = 0;       // query heads
  int64_t Hkv = 0;      // KV heads
  int64_t D = 0;        // head dim
  int64_t context = 0;  // positions that the model was made for
  float eps = 1e-5f;
  ops::RopeAttrs rope;
  bool rope_factors = false;     // the file brings a tensor of frequency divisors
  std::vector<int64_t> windows;  // [layers] sliding window; 0: full attention
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  bool tied_head = false;  // lm_head is token_embd
  ops::Activation activation = ops::Activation::silu;
  std::vector<std::string> remarks;  // for the user, a line each: what a file says in vain

  bool operator==(const ModelConfig&) const = default;
};

// Fails with kMalformed, naming `origin`, the field and its value, where the numbers make no model:
// sizes below 1 or beyond sane limits, query heads that are no multiple of KV heads, RoPE whose
// frequencies would be no numbers.
void check_config(const ModelConfig& config, const std::string& origin);

}  // namespace braid
