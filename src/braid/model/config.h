#pragma once

#include <optional>
#include <string>
#include <vector>

#include "braid/ops/linear.h"
#include "braid/ops/rope.h"
#include "braid/ops/route.h"

namespace braid {

// The feed-forward block of a mixture of experts.
struct ExpertConfig {
  int64_t E = 0;  // experts of a layer
  int64_t F = 0;  // width of each
  ops::RouteAttrs route;
  int64_t shared_F = 0;      // width of the expert that every token takes; 0: there is none
  bool shared_gate = false;  // its result is scaled by sigmoid(x . g)
  // [layers] whether a layer has experts, or the block of a dense model.
  std::vector<bool> sparse;

  bool operator==(const ExpertConfig&) const = default;
};

// The hyper-parameters of a decoder, whichever file they came from.
struct ModelConfig {
  std::string family;  // the name of its ModelFamily
  std::string name;    // as the file calls the model; may be empty
  int64_t layers = 0;
  int64_t C = 0;        // model width
  int64_t F = 0;        // feed-forward width of a dense layer
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
  std::optional<ExpertConfig> experts;
  std::vector<std::string> remarks;  // for the user, a line each: what a file says in vain

  bool operator==(const ModelConfig&) const = default;

  bool sparse(int64_t layer) const {
    return experts && experts->sparse[static_cast<size_t>(layer)];
  }
};

// Fails with kMalformed, naming `origin`, the field and its value, where the numbers make no model:
// sizes below 1 or beyond sane limits, query heads that are no multiple of KV heads, RoPE whose
// frequencies would be no numbers, more experts of a token than there are.
void check_config(const ModelConfig& config, const std::string& origin);

}  // namespace braid
