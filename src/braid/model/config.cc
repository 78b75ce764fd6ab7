#include "braid/model/config.h"

#include <algorithm>
#include <cmath>

namespace braid {
namespace {

constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxWidth = int64_t{1} << 24;
constexpr int64_t kMaxHeadDim = 256;
constexpr int64_t kMaxLatent = 640;

void check(const std::string& origin, std::string_view field, int64_t value, int64_t limit) {
  if (value < 1 || value > limit) {
    fail(ErrorCode::kMalformed, "{}: {} is {}, allowed are 1 to {}", origin, field, value, limit);
  }
}

void check_rope(const std::string& origin, const ops::RopeAttrs& rope) {
  const auto wanted = [&](bool holds, std::string_view what, double value, std::string_view range) {
    if (holds && std::isfinite(value)) return;
    fail(ErrorCode::kMalformed, "{}: the {} of RoPE is {}, wanted is {}", origin, what, value,
         range);
  };
  wanted(rope.theta > 0, "base", rope.theta, "a positive number");
  wanted(rope.factor > 0, "scaling factor", rope.factor, "a positive number");
  wanted(true, "attention factor", rope.attention_factor, "a number");
  if (rope.rotary_dim % 2 != 0) {
    fail(ErrorCode::kMalformed, "{}: the rotary dimension is {}, wanted is an even number", origin,
         rope.rotary_dim);
  }
  if (rope.scaling == ops::RopeScaling::yarn || rope.scaling == ops::RopeScaling::llama3) {
    check(origin, "the original context length", rope.original_context, INT32_MAX);
  }
  if (rope.scaling == ops::RopeScaling::yarn) {
    wanted(rope.theta > 1, "base", rope.theta, "a number above 1 for YaRN");
    wanted(rope.beta_fast > 0, "beta_fast", rope.beta_fast, "a positive number");
    wanted(rope.beta_slow > 0, "beta_slow", rope.beta_slow, "a positive number");
  }
  if (rope.scaling == ops::RopeScaling::llama3) {
    wanted(true, "low_freq_factor", rope.low_freq_factor, "a number");
    wanted(rope.high_freq_factor != rope.low_freq_factor, "high_freq_factor", rope.high_freq_factor,
           "a number other than low_freq_factor");
  }
}

void check_experts(const std::string& origin, const ExpertConfig& e) {
  const ops::RouteAttrs& route = e.route;
  check(origin, "the number of experts", e.E, ops::kMaxExperts);
  check(origin, "the number of experts of a token", route.top_k, e.E);
  check(origin, "the width of an expert", e.F, kMaxWidth);
  if (e.shared_F != 0) check(origin, "the width of the shared expert", e.shared_F, kMaxWidth);
  check(origin, "the number of groups of experts", route.groups, e.E);
  if (e.E % route.groups != 0) {
    fail(ErrorCode::kMalformed, "{}: {} experts are no whole groups, of which there are {}", origin,
         e.E, route.groups);
  }
  check(origin, "the number of groups that a token keeps", route.kept_groups, route.groups);
  const int64_t left = e.E / route.groups * route.kept_groups;
  if (route.top_k > left) {
    fail(ErrorCode::kMalformed,
         "{}: the {} groups that a token keeps have {} experts, wanted are {}", origin,
         route.kept_groups, left, route.top_k);
  }
  if (!std::isfinite(route.scale)) {
    fail(ErrorCode::kMalformed, "{}: the scale of the experts' weights is {}, wanted is a number",
         origin, route.scale);
  }
}

void check_latent(const std::string& origin, const LatentConfig& l) {
  check(origin, "the rank of the latents (kv_lora_rank)", l.R, kMaxWidth);
  if (l.q_rank != 0) check(origin, "the rank of the queries (q_lora_rank)", l.q_rank, kMaxWidth);
  check(origin, "the rotated columns of a key", l.Dr, kMaxHeadDim);
  check(origin, "the other columns of a key", l.Dn, kMaxHeadDim);
  check(origin, "the columns of a value", l.Dv, kMaxWidth);
  if ((l.R + l.Dr) % 8 != 0 || l.R + l.Dr > kMaxLatent) {
    fail(ErrorCode::kUnsupported,
         "{}: a latent of {} and {} rotated columns, wanted is a multiple of 8, at most {}", origin,
         l.R, l.Dr, kMaxLatent);
  }
  if (!std::isfinite(l.logit_scale)) {
    fail(ErrorCode::kMalformed, "{}: the scale of logits is {}, wanted is a number", origin,
         l.logit_scale);
  }
}

void check_dual(const std::string& origin, const ModelConfig& c) {
  const ops::DualChunks& d = c.dual->chunks;
  check(origin, "dual_chunk_attention_config: chunk_size", d.reach, INT32_MAX);
  check(origin, "dual_chunk_attention_config: chunk_size - local_size", d.chunk, d.reach - 1);
  check(origin, "dual_chunk_attention_config: local_size", d.reach - d.chunk, d.chunk);
  if (d.original != 0) {
    check(origin, "dual_chunk_attention_config: original_max_position_embeddings", d.original,
          INT32_MAX);
  }
  const bool windows = std::ranges::any_of(c.windows, [](int64_t w) { return w != 0; });
  if (windows || c.rope_factors || c.latent || c.dynamic_rope != 0) {
    fail(ErrorCode::kUnsupported,
         "{}: dual chunk attention with windows, latent attention or RoPE of a changing base",
         origin);
  }
}

}  // namespace

void check_config(const ModelConfig& c, const std::string& origin) {
  check(origin, "the number of layers", c.layers, kMaxLayers);
  check(origin, "the model width", c.C, kMaxWidth);
  check(origin, "the feed-forward width", c.F, kMaxWidth);
  check(origin, "the vocabulary size", c.V, kMaxWidth);
  check(origin, "the number of query heads", c.Hq, kMaxWidth);
  check(origin, "the number of KV heads", c.Hkv, c.Hq);
  check(origin, "the head dimension", c.D, kMaxHeadDim);
  check(origin, "the context length", c.context, INT32_MAX);
  check(origin, "the rotary dimension", c.rope.rotary_dim, c.D);
  if (c.Hq % c.Hkv != 0) {
    fail(ErrorCode::kMalformed, "{}: {} query heads are no multiple of {} KV heads", origin, c.Hq,
         c.Hkv);
  }
  if (!c.latent && c.D % 8 != 0) {
    fail(ErrorCode::kUnsupported, "{}: the head dimension is {}, no multiple of 8", origin, c.D);
  }
  if (!(c.eps > 0 && c.eps < 1)) {
    fail(ErrorCode::kMalformed, "{}: the norm's epsilon is {}, wanted between 0 and 1", origin,
         c.eps);
  }
  check_rope(origin, c.rope);
  if (c.experts) check_experts(origin, *c.experts);
  if (c.latent) check_latent(origin, *c.latent);
  if (c.dual) check_dual(origin, c);
}

void stretch_context(ModelConfig& config, int64_t tokens) {
  if (config.dual && tokens > config.context) {
    config.context = std::max(config.context, std::min(tokens, config.dual->context));
  }
  if (config.dynamic_rope == 0 || tokens <= config.context) return;
  const double over = static_cast<double>(tokens) / static_cast<double>(config.context);
  const double grown = config.dynamic_rope * over - (config.dynamic_rope - 1);
  const double exponent =
      static_cast<double>(config.rope.rotary_dim) / static_cast<double>(config.rope.rotary_dim - 2);
  config.rope.theta = static_cast<float>(config.rope.theta * std::pow(grown, exponent));
  config.context = tokens;
  check_config(config, "dynamic RoPE");
}

}  // namespace braid
