#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "braid/io/quoted.h"
#include "braid/model/decoder.h"

namespace braid::decoder {
namespace {

// The `<architecture>.<key>` entries of a file, as in gguf_keys().
class Keys {
 public:
  Keys(const GgufFile& file, std::string_view column)
      : file_(file),
        metadata_(file.metadata()),
        architecture_(metadata_.get<std::string_view>("general.architecture")),
        column_(column.empty() ? architecture_ : column) {
    for (const ConfigKey& key : gguf_keys().keys) check_refused(key);
  }

  template <class T>
  std::optional<T> find(std::string_view key) const {
    const KeyCell cell = gguf_keys().cell(key, column_);
    if (cell.use != KeyUse::read) return std::nullopt;
    if (cell.wanted) return metadata_.get<T>(full(key));
    if (auto value = metadata_.find<T>(full(key))) return value;
    if (cell.otherwise.empty()) return std::nullopt;
    if constexpr (std::is_same_v<T, std::string_view>) {
      return cell.otherwise.substr(1, cell.otherwise.size() - 2);  // without its quotes
    } else {
      return nlohmann::json::parse(cell.otherwise).get<T>();
    }
  }
  template <class T>
  T get(std::string_view key) const {
    auto value = find<T>(key);
    BRAID_CHECK(value.has_value(), "{} has no default", key);
    return *std::move(value);
  }

  // A number, or an array with a number for each of `layers` layers.
  std::optional<int64_t> find_per_layer(std::string_view key, int64_t layers) const {
    const GgufValue* value = metadata_.value(full(key));
    if (value == nullptr || !value->is_array) return find<int64_t>(key);
    const auto all = metadata_.get<std::vector<int64_t>>(full(key));
    if (static_cast<int64_t>(all.size()) != layers) {
      fail(ErrorCode::kMalformed, "{}: metadata {} has {} entries for {} layers", file_.path(),
           braid::quoted(full(key)), all.size(), layers);
    }
    for (const int64_t x : all) {
      if (x == all[0]) continue;
      fail(ErrorCode::kUnsupported, "{}: metadata {} is {}: layers that differ are not supported",
           file_.path(), braid::quoted(full(key)), preview(*value));
    }
    return all.empty() ? std::nullopt : std::optional(all[0]);
  }

  std::string full(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }

 private:
  void check_refused(const ConfigKey& key) const {
    const KeyCell cell = gguf_keys().cell(key.name, column_);
    const GgufValue* value = metadata_.value(full(key.name));
    if (cell.use != KeyUse::refused || value == nullptr) return;
    if (preview(*value) == cell.otherwise) return;
    fail(ErrorCode::kUnsupported, "{}: {} is {}, which is not supported: {}", file_.path(),
         full(key.name), preview(*value), key.note);
  }

  const GgufFile& file_;
  const GgufMetadata& metadata_;
  std::string_view architecture_;
  std::string_view column_;
};

ops::RopeAttrs read_rope(const Keys& keys, const std::string& path, int64_t head_dim,
                         int64_t context) {
  ops::RopeAttrs rope{.head_dim = head_dim};
  rope.rotary_dim = keys.find<int64_t>("rope.dimension_count").value_or(head_dim);
  rope.theta = keys.get<float>("rope.freq_base");
  rope.attention_factor = keys.get<float>("rope.scaling.attn_factor");
  const auto type = keys.get<std::string_view>("rope.scaling.type");
  if (type == "none") return rope;
  auto factor = keys.find<float>("rope.scaling.factor");
  if (!factor) factor = keys.find<float>("rope.scale_linear");
  rope.factor = factor.value_or(0) == 0 ? 1 : *factor;
  if (type == "linear") {
    if (rope.factor != 1) rope.scaling = ops::RopeScaling::linear;
  } else if (type == "yarn") {
    rope.scaling = ops::RopeScaling::yarn;
    rope.original_context = keys.find<int64_t>("rope.scaling.original_context_length").value_or(0);
    if (rope.original_context == 0) rope.original_context = context;
    if (rope.factor > 1) rope.attention_factor *= 1 + 0.1f * std::log(rope.factor);
  } else {
    fail(ErrorCode::kUnsupported,
         "{}: RoPE scaling {} is not supported (known: none, linear, yarn)", path,
         braid::quoted(type));
  }
  return rope;
}

void check_heads(const Keys& keys, const ModelConfig& c, bool turns_parts,
                 const std::string& path) {
  const int64_t values = keys.find<int64_t>("attention.value_length").value_or(c.D);
  if (values != c.D) {
    fail(ErrorCode::kUnsupported,
         "{}: {} is {}, keys have {}: heads of two sizes are not supported", path,
         keys.full("attention.value_length"), values, c.D);
  }
  // llama.cpp refuses this as well.
  if (!turns_parts && c.rope.pairing == ops::RopePairing::interleaved && c.rope.rotary_dim != c.D) {
    fail(ErrorCode::kUnsupported, "{}: {} is {}, a llama turns whole heads of {}", path,
         keys.full("rope.dimension_count"), c.rope.rotary_dim, c.D);
  }
}

// The router's keys in a file with latent attention.
void read_router(const Keys& keys, const std::string& path, ModelConfig& c) {
  ExpertConfig& e = *c.experts;
  const auto gating = keys.find<int64_t>("expert_gating_func").value_or(0);
  // Files older than the key: GLM-4.7-Flash, recognized by its sizes, has sigmoids.
  const bool flash = c.layers >= 47 && c.layers <= 48 && c.V == 154880;
  if (gating < 0 || gating > 2) {
    fail(ErrorCode::kUnsupported, "{}: {} is {}, allowed are 1 (softmax) and 2 (sigmoid)", path,
         keys.full("expert_gating_func"), gating);
  }
  const bool sigmoid = gating == 2 || (gating == 0 && flash);
  e.route.score = sigmoid ? ops::RouteScore::sigmoid : ops::RouteScore::softmax;
  e.route.group_score = sigmoid ? ops::GroupScore::two_best : ops::GroupScore::max;
  e.route.weight = keys.get<bool>("expert_weights_norm") ? ops::RouteWeight::normalised
                                                         : ops::RouteWeight::score;
  const float scale = keys.get<float>("expert_weights_scale");
  e.route.scale = scale == 0 ? 1 : scale;
  e.route.groups = std::max<int64_t>(1, keys.get<int64_t>("expert_group_count"));
  e.route.kept_groups = keys.get<int64_t>("expert_group_used_count");
  if (e.route.groups == 1) e.route.kept_groups = 1;
  e.shared_F = keys.get<int64_t>("expert_shared_count") * e.F;
  e.shared_gate = false;
  const auto first = keys.get<int64_t>("leading_dense_block_count");
  for (int64_t i = 0; i < c.layers; ++i) e.sparse[i] = i >= first;
}

LatentConfig read_latent(const Keys& keys, bool split) {
  const auto either = [&](std::string_view own, std::string_view otherwise) {
    const auto value = keys.find<int64_t>(own);
    return value ? *value : keys.find<int64_t>(otherwise).value_or(0);
  };
  LatentConfig l{.q_rank = keys.find<int64_t>("attention.q_lora_rank").value_or(0),
                 .R = keys.get<int64_t>("attention.kv_lora_rank"),
                 .Dr = keys.get<int64_t>("rope.dimension_count"),
                 .transposed = split};
  l.Dn = either("attention.key_length_mla", "attention.key_length") - l.Dr;
  l.Dv = either("attention.value_length_mla", "attention.value_length");
  return l;
}

// The file's multiplier is 0.1 mscale_all_dim; llama.cpp lets cos and sin be as they are then.
void scale_logits(const Keys& keys, ModelConfig& c) {
  const float multiplier = keys.get<float>("rope.scaling.yarn_log_multiplier");
  if (c.rope.scaling != ops::RopeScaling::yarn || multiplier == 0) return;
  const float m = 1 + (multiplier * std::log(c.rope.factor));
  c.latent->logit_scale = m * m;
  c.rope.attention_factor = 1;
}

// As in llama.cpp: without a separate width, a token's experts share the dense width.
std::optional<ExpertConfig> read_experts(const Keys& keys, const ModelConfig& c,
                                         const GgufTraits& traits) {
  const auto E = keys.find<int64_t>("expert_count");
  if (!E) return std::nullopt;
  ExpertConfig experts{.E = *E};
  experts.route.top_k = keys.find_per_layer("expert_used_count", c.layers).value_or(0);
  experts.route.weight = traits.expert_weight;
  const int64_t used = std::max<int64_t>(1, experts.route.top_k);
  experts.F = keys.find<int64_t>("expert_feed_forward_length").value_or(0);
  if (experts.F == 0) experts.F = traits.experts_are_dense_wide ? c.F : c.F / used;
  if (traits.shared_expert) {
    experts.shared_F = keys.find<int64_t>("expert_shared_feed_forward_length").value_or(0);
    if (experts.shared_F == 0) experts.shared_F = c.F;
    experts.shared_gate = true;
  }
  experts.sparse.assign(c.layers, true);
  return experts;
}

}  // namespace

bool has_experts(const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata();
  const auto architecture = metadata.get<std::string_view>("general.architecture");
  return metadata.get_or<int64_t>(fmt::format("{}.expert_count", architecture), 0) != 0;
}

ModelConfig gguf_config(const GgufFile& file, const GgufTraits& traits) {
  const Keys keys(file, traits.column);
  const auto has = [&](std::string_view canonical) {
    return file.contents().tensors.find(gguf_name(canonical)) != nullptr;
  };
  ModelConfig c;
  c.name = file.metadata().get_or<std::string_view>("general.name", "");
  c.layers =
      keys.get<int64_t>("block_count") - keys.find<int64_t>("nextn_predict_layers").value_or(0);
  c.C = keys.get<int64_t>("embedding_length");
  c.F = keys.find_per_layer("feed_forward_length", c.layers).value_or(0);
  c.Hq = keys.find_per_layer("attention.head_count", c.layers).value_or(0);
  c.Hkv = keys.find_per_layer("attention.head_count_kv", c.layers).value_or(c.Hq);
  c.D = keys.find<int64_t>("attention.key_length").value_or(c.Hq > 0 ? c.C / c.Hq : 0);
  c.context = keys.get<int64_t>("context_length");
  c.eps = keys.get<float>("attention.layer_norm_rms_epsilon");
  c.V = file.type(gguf_name("token_embd")).shape[0];
  if (traits.latent) {
    c.latent = read_latent(keys, has("layers.0.attn.k_b"));
    c.D = c.latent->Dn + c.latent->Dr;
    c.Hkv = c.Hq;
  }
  c.rope = read_rope(keys, file.path(), c.latent ? c.latent->Dr : c.D, c.context);
  c.rope.pairing = traits.pairing;
  constexpr std::string_view kOriginal = "rope.scaling.original_context_length";
  if (c.latent && c.rope.scaling == ops::RopeScaling::yarn &&
      keys.find<int64_t>(kOriginal).value_or(0) == 0) {
    fail(ErrorCode::kMalformed,
         "{}: {} is missing or 0: latent attention with YaRN wants it, since the context length, "
         "{}, may be lengthened",
         file.path(), keys.full(kOriginal), c.context);
  }
  if (c.latent) scale_logits(keys, c);
  c.rope_factors = traits.rope_factors && has("rope_factors");
  c.qkv_bias = has("layers.0.attn.q.bias");
  c.o_bias = has("layers.0.attn.o.bias");
  c.mlp_bias = has("layers.0.mlp.up.bias");
  c.qk_norm = traits.qk_norm;
  c.tied_head = !has("lm_head");
  check_config(c, file.path());
  c.experts = read_experts(keys, c, traits);
  if (c.latent && c.experts) {
    read_router(keys, file.path(), c);
    const auto sparse = std::ranges::find(c.experts->sparse, true) - c.experts->sparse.begin();
    c.experts->choice_bias = has(fmt::format("layers.{}.mlp.choice.bias", sparse));
  }
  check_config(c, file.path());
  if (!c.latent) check_heads(keys, c, traits.turns_parts, file.path());
  c.windows.assign(c.layers, 0);
  return c;
}

}  // namespace braid::decoder
