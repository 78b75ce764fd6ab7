#include <cmath>

#include "braid/model/decoder.h"

namespace braid::decoder {
namespace {

ops::RopeAttrs read_rope(const JsonObject& config, int64_t head_dim, int64_t context) {
  ops::RopeAttrs rope{.head_dim = head_dim, .pairing = ops::RopePairing::half};
  const auto partial = config.get_or<double>("partial_rotary_factor", 1.0);
  rope.rotary_dim = static_cast<int64_t>(static_cast<double>(head_dim) * partial);
  rope.theta = static_cast<float>(config.get_or<double>("rope_theta", 10000.0));
  auto scaling = config.object("rope_parameters");
  if (!scaling) scaling = config.object("rope_scaling");
  if (!scaling) return rope;
  const auto number = [&](std::string_view key, double otherwise) {
    return static_cast<float>(scaling->get_or<double>(key, otherwise));
  };
  rope.theta = number("rope_theta", rope.theta);
  auto type = scaling->find<std::string>("rope_type");
  if (!type) type = scaling->get_or<std::string>("type", "default");
  if (*type == "default") return rope;
  rope.factor = static_cast<float>(scaling->get<double>("factor"));
  rope.original_context =
      scaling->get_or<int64_t>("original_max_position_embeddings",
                               config.get_or<int64_t>("original_max_position_embeddings", context));
  if (*type == "linear") {
    rope.scaling = ops::RopeScaling::linear;
  } else if (*type == "llama3") {
    rope.scaling = ops::RopeScaling::llama3;
    rope.low_freq_factor = static_cast<float>(scaling->get<double>("low_freq_factor"));
    rope.high_freq_factor = static_cast<float>(scaling->get<double>("high_freq_factor"));
  } else if (*type == "yarn") {
    rope.scaling = ops::RopeScaling::yarn;
    rope.beta_fast = number("beta_fast", 32);
    rope.beta_slow = number("beta_slow", 1);
    rope.truncate = scaling->get_or<bool>("truncate", true);
    rope.attention_factor = number("attention_factor", 1 + 0.1 * std::log(rope.factor));
  } else {
    fail(ErrorCode::kUnsupported,
         "config.json: RoPE scaling '{}' (known: default, linear, llama3, yarn)", *type);
  }
  return rope;
}

// Which layers see a sliding window: layer_types where the file lists them, else all of them, or
// those from max_window_layers on.
std::vector<int64_t> read_windows(const JsonObject& config, int64_t layers,
                                  bool slides_unless_told) {
  std::vector<int64_t> windows(static_cast<size_t>(layers), 0);
  const auto window = config.find<int64_t>("sliding_window");
  if (!window || !config.get_or<bool>("use_sliding_window", slides_unless_told)) return windows;
  const auto types = config.find<std::vector<std::string>>("layer_types");
  if (types && static_cast<int64_t>(types->size()) != layers) {
    fail(ErrorCode::kMalformed, "config.json: layer_types has {} entries for {} layers",
         types->size(), layers);
  }
  const auto first = config.get_or<int64_t>("max_window_layers", 0);
  for (size_t i = 0; i < windows.size(); ++i) {
    const bool slides =
        types ? (*types)[i] == "sliding_attention" : static_cast<int64_t>(i) >= first;
    if (slides) windows[i] = *window;
  }
  return windows;
}

ops::Activation read_activation(const JsonObject& config) {
  const auto name = config.get_or<std::string>("hidden_act", "silu");
  if (name == "silu" || name == "swish") return ops::Activation::silu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return ops::Activation::gelu_tanh;
  fail(ErrorCode::kUnsupported, "config.json: hidden_act '{}' (known: silu, gelu_pytorch_tanh)",
       name);
}

}  // namespace

ModelConfig hf_config(const JsonObject& config, bool slides_unless_told) {
  ModelConfig c;
  c.name = config.get_or<std::string>("_name_or_path", "");
  c.layers = config.get<int64_t>("num_hidden_layers");
  c.C = config.get<int64_t>("hidden_size");
  c.F = config.get<int64_t>("intermediate_size");
  c.V = config.get<int64_t>("vocab_size");
  c.Hq = config.get<int64_t>("num_attention_heads");
  c.Hkv = config.get_or<int64_t>("num_key_value_heads", c.Hq);
  c.D = config.get_or<int64_t>("head_dim", c.Hq > 0 ? c.C / c.Hq : 0);
  c.context = config.get<int64_t>("max_position_embeddings");
  c.eps = static_cast<float>(config.get_or<double>("rms_norm_eps", 1e-6));
  c.rope = read_rope(config, c.D, c.context);
  c.qkv_bias = c.o_bias = config.get_or<bool>("attention_bias", false);
  c.mlp_bias = config.get_or<bool>("mlp_bias", false);
  c.tied_head = config.get_or<bool>("tie_word_embeddings", false);
  c.activation = read_activation(config);
  check_config(c, "config.json");
  c.windows = read_windows(config, c.layers, slides_unless_told);
  return c;
}

}  // namespace braid::decoder
