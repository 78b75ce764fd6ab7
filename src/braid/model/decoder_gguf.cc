#include <cmath>

#include "braid/model/decoder.h"

namespace braid::decoder {
namespace {

// The `<architecture>.<key>` entries of one file.
class Keys {
 public:
  explicit Keys(const GgufFile& file)
      : metadata_(file.metadata()),
        prefix_(std::string(metadata_.get<std::string_view>("general.architecture")) + ".") {}

  template <class T>
  T get(std::string_view key) const {
    return metadata_.get<T>(prefix_ + std::string(key));
  }
  template <class T>
  T get_or(std::string_view key, T otherwise) const {
    return metadata_.get_or<T>(prefix_ + std::string(key), otherwise);
  }
  template <class T>
  std::optional<T> find(std::string_view key) const {
    return metadata_.find<T>(prefix_ + std::string(key));
  }

 private:
  const GgufMetadata& metadata_;
  std::string prefix_;
};

ops::RopeAttrs read_rope(const Keys& keys, const std::string& path, int64_t head_dim,
                         int64_t context) {
  ops::RopeAttrs rope{.head_dim = head_dim};
  rope.rotary_dim = keys.get_or<int64_t>("rope.dimension_count", head_dim);
  rope.theta = keys.get_or<float>("rope.freq_base", 10000.0f);
  const auto type = keys.get_or<std::string_view>("rope.scaling.type", "none");
  if (type == "none") {
    // Files from before rope.scaling.* have linear scaling in this key alone.
    rope.factor = keys.get_or<float>("rope.scale_linear", 1.0f);
    if (rope.factor != 1.0f) rope.scaling = ops::RopeScaling::linear;
    return rope;
  }
  rope.factor = keys.get<float>("rope.scaling.factor");
  if (type == "linear") {
    rope.scaling = ops::RopeScaling::linear;
  } else if (type == "yarn") {
    rope.scaling = ops::RopeScaling::yarn;
    rope.original_context = keys.get_or<int64_t>("rope.scaling.original_context_length", context);
    rope.beta_fast = keys.get_or<float>("rope.scaling.yarn_beta_fast", 32.0f);
    rope.beta_slow = keys.get_or<float>("rope.scaling.yarn_beta_slow", 1.0f);
    rope.attention_factor =
        keys.get_or<float>("rope.scaling.attn_factor", 1.0f) * (1 + 0.1f * std::log(rope.factor));
  } else {
    fail(ErrorCode::kUnsupported, "{}: RoPE scaling '{}' (known: none, linear, yarn)", path, type);
  }
  return rope;
}

}  // namespace

ModelConfig gguf_config(const GgufFile& file, ops::RopePairing pairing) {
  const Keys keys(file);
  const auto has = [&](std::string_view canonical) {
    return file.contents().tensors.find(gguf_name(canonical)) != nullptr;
  };
  ModelConfig c;
  c.name = file.metadata().get_or<std::string_view>("general.name", "");
  c.layers = keys.get<int64_t>("block_count");
  c.C = keys.get<int64_t>("embedding_length");
  c.F = keys.get<int64_t>("feed_forward_length");
  c.Hq = keys.get<int64_t>("attention.head_count");
  c.Hkv = keys.get_or<int64_t>("attention.head_count_kv", c.Hq);
  c.D = keys.get_or<int64_t>("attention.key_length", c.Hq > 0 ? c.C / c.Hq : 0);
  c.context = keys.get<int64_t>("context_length");
  c.eps = keys.get<float>("attention.layer_norm_rms_epsilon");
  c.V = file.get(gguf_name("token_embd")).shape[0];
  c.rope = read_rope(keys, file.path(), c.D, c.context);
  c.rope.pairing = pairing;
  c.rope_factors = has("rope_factors");
  c.qkv_bias = has("layers.0.attn.q.bias");
  c.o_bias = has("layers.0.attn.o.bias");
  c.mlp_bias = has("layers.0.mlp.up.bias");
  c.qk_norm = has("layers.0.attn.q_norm");
  c.tied_head = !has("lm_head");
  check_config(c, file.path());
  c.windows.assign(static_cast<size_t>(c.layers),
                   keys.get_or<int64_t>("attention.sliding_window", 0));
  return c;
}

}  // namespace braid::decoder
