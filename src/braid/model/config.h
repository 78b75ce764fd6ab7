#pragma once

#include <optional>
#include <string>
#include <vector>

#include "braid/ops/dual_chunks.h"
#include "braid/ops/linear.h"
#include "braid/ops/rope.h"
#include "braid/ops/route.h"

namespace braid {

// A mixture of experts as feed-forward block.
struct ExpertConfig {
  int64_t E = 0;  // experts of a layer
  int64_t F = 0;  // width of each
  ops::RouteAttrs route;
  int64_t shared_F = 0;      // width of the expert for every token; 0: none
  bool choice_bias = false;  // the choice counts a bias for each expert
  bool shared_gate = false;  // its result is scaled by sigmoid(x . g)
  // [layers] whether a layer has experts, or the block of a dense model.
  std::vector<bool> sparse;

  bool operator==(const ExpertConfig&) const = default;
};

// Latent attention: R, Dn, Dr and Dv in ops/latent_attention.h.
struct LatentConfig {
  int64_t q_rank = 0;  // width of the queries' own latent; 0: no such latent
  int64_t R = 0;
  int64_t Dn = 0;
  int64_t Dr = 0;
  int64_t Dv = 0;
  float eps = 1e-6f;        // of the latents' norms
  float logit_scale = 1;    // beside 1 / sqrt(Dn + Dr)
  bool transposed = false;  // the file has k_b as [H, R, Dn], apart from v_b

  bool operator==(const LatentConfig&) const = default;
};

// Attention beyond the context, for sequences of at most `context` tokens.
struct DualChunkConfig {
  ops::DualChunks chunks;  // their rope is the model's
  int64_t context = 0;

  bool operator==(const DualChunkConfig&) const = default;
};

// A decoder's hyper-parameters, from any kind of file.
struct ModelConfig {
  std::string family;  // its ModelFamily's name
  std::string name;    // as the file calls the model; may be empty
  int64_t layers = 0;
  int64_t C = 0;        // model width
  int64_t F = 0;        // feed-forward width of a dense layer
  int64_t V = 0;        // vocabulary
  int64_t Hq = 0;       // query heads
  int64_t Hkv = 0;      // KV heads
  int64_t D = 0;        // head dim
  int64_t context = 0;  // positions that the model was made for
  // Dynamic RoPE: growth of its base for longer sequences. 0: longer sequences are not allowed.
  double dynamic_rope = 0;
  float eps = 1e-5f;
  ops::RopeAttrs rope;           // of latent attention: turns the Dr columns alone
  bool rope_factors = false;     // the file brings a tensor of frequency divisors
  std::vector<int64_t> windows;  // [layers] sliding window; 0: full attention
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  bool tied_head = false;  // lm_head is token_embd
  ops::Activation activation = ops::Activation::silu;
  std::optional<ExpertConfig> experts;
  std::optional<LatentConfig> latent;
  std::optional<DualChunkConfig> dual;
  std::vector<std::string> remarks;  // for the user, a line each: ignored settings in a file

  bool operator==(const ModelConfig&) const = default;

  bool sparse(int64_t layer) const { return experts && experts->sparse[layer]; }
  // Numbers in a layer's cache per token, on a rank among `parts` ranks that divide the heads.
  int64_t cached_numbers(int64_t parts = 1) const {
    return latent ? latent->R + latent->Dr : 2 * ceil_div(Hkv, parts) * D;
  }
};

// Fails with kMalformed, naming `origin`, the field and the value, if the numbers make no model:
// sizes below 1 or beyond sane limits, query heads that are no multiple of KV heads, RoPE with
// frequencies beyond numbers, more chosen experts than experts.
void check_config(const ModelConfig& config, const std::string& origin);

// Lengthens `context` to `tokens`: with dual chunks as far as the chunks allow, with dynamic RoPE
// to any length, for which RoPE's base is set. Other models, and shorter lengths, stay the same.
// A base holds for all tokens in a job, whatever steps bring them: keys with different bases do not
// meet.
void stretch_context(ModelConfig& config, int64_t tokens);

}  // namespace braid
