#include "braid/model/config_keys.h"
#include "braid/model/decoder.h"

namespace braid::decoder {
namespace {

// A file's listed layer types; true for a layer with a window.
std::vector<bool> listed_windows(const std::vector<std::string>& types, int64_t layers) {
  if (static_cast<int64_t>(types.size()) != layers) {
    fail(ErrorCode::kMalformed, "config.json: layer_types has {} entries for {} layers",
         types.size(), layers);
  }
  std::vector<bool> slides;
  for (const std::string& type : types) {
    // Files older than named layer types say "attention".
    if (type != "sliding_attention" && type != "full_attention" && type != "attention") {
      fail(ErrorCode::kUnsupported,
           "config.json: layer_types has '{}' (known: full_attention, sliding_attention)", type);
    }
    slides.push_back(type == "sliding_attention");
  }
  return slides;
}

// `alternate`: every other layer up to max_window_layers has one, not all behind.
std::vector<int64_t> read_windows(const TableReader& keys, int64_t layers, bool alternate) {
  const auto window = keys.find<int64_t>("sliding_window");
  // A family without the switch has its window always.
  const bool on = window && keys.find<bool>("use_sliding_window").value_or(true);
  if (on && (*window < 1 || *window > INT32_MAX)) {
    fail(ErrorCode::kMalformed, "config.json: sliding_window is {}, wanted is null or 1 to {}",
         *window, INT32_MAX);
  }
  const int64_t first = keys.find<int64_t>("max_window_layers").value_or(0);
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < layers; ++i) {
    const bool slides = alternate ? i % 2 == 0 && i < first : i >= first;
    windows.push_back(on && slides ? *window : 0);
  }
  const auto types = keys.find<std::vector<std::string>>("layer_types");
  if (!types) return windows;
  const std::vector<bool> slides = listed_windows(*types, layers);
  for (size_t i = 0; i < windows.size(); ++i) {
    if (slides[i] && !on) {
      fail(ErrorCode::kMalformed,
           "config.json: layer_types asks for a window in layer {}, and sliding_window and "
           "use_sliding_window give none",
           i);
    }
    windows[i] = slides[i] ? *window : 0;
  }
  return windows;
}

ops::Activation read_activation(const std::string& name) {
  if (name == "silu" || name == "swish") return ops::Activation::silu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return ops::Activation::gelu_tanh;
  fail(ErrorCode::kUnsupported,
       "config.json: hidden_act '{}' (known: silu, swish, gelu_pytorch_tanh, gelu_new)", name);
}

// Dense or sparse, for each layer.
std::vector<bool> listed_sparse(const std::vector<std::string>& types, int64_t layers) {
  if (static_cast<int64_t>(types.size()) != layers) {
    fail(ErrorCode::kMalformed, "config.json: mlp_layer_types has {} entries for {} layers",
         types.size(), layers);
  }
  std::vector<bool> sparse;
  for (const std::string& type : types) {
    if (type != "dense" && type != "sparse") {
      fail(ErrorCode::kUnsupported, "config.json: mlp_layer_types has '{}' (known: dense, sparse)",
           type);
    }
    sparse.push_back(type == "sparse");
  }
  return sparse;
}

// Layers with experts: every decoder_sparse_step-th, except for mlp_only_layers.
std::vector<bool> read_sparse(const TableReader& keys, int64_t layers) {
  const int64_t step = keys.find<int64_t>("decoder_sparse_step").value_or(1);
  if (step < 1 || step > layers) {
    fail(ErrorCode::kMalformed,
         "config.json: decoder_sparse_step is {}, allowed are 1 to the {} layers", step, layers);
  }
  if (const auto types = keys.find<std::vector<std::string>>("mlp_layer_types")) {
    return listed_sparse(*types, layers);
  }
  const int64_t first = keys.find<int64_t>("first_k_dense_replace").value_or(0);
  std::vector<bool> sparse;
  for (int64_t i = 0; i < layers; ++i) sparse.push_back((i + 1) % step == 0 && i >= first);
  for (const int64_t i :
       keys.find<std::vector<int64_t>>("mlp_only_layers").value_or(std::vector<int64_t>())) {
    // transformers ignores layers outside the model.
    if (0 <= i && i < layers) sparse[i] = false;
  }
  return sparse;
}

std::optional<ExpertConfig> read_experts(const TableReader& keys, const ModelConfig& c) {
  auto E = keys.find<int64_t>("num_local_experts");
  if (!E) E = keys.find<int64_t>("num_experts");
  if (!E) E = keys.find<int64_t>("n_routed_experts");
  if (!E) return std::nullopt;
  ExpertConfig experts{.E = *E, .F = keys.find<int64_t>("moe_intermediate_size").value_or(c.F)};
  experts.route.top_k = keys.get<int64_t>("num_experts_per_tok");
  const bool normalised = keys.find<bool>("norm_topk_prob").value_or(true);
  experts.route.weight = normalised ? ops::RouteWeight::normalised : ops::RouteWeight::score;
  experts.shared_F = keys.find<int64_t>("shared_expert_intermediate_size").value_or(0);
  experts.shared_gate = experts.shared_F != 0;
  if (const auto shared = keys.find<int64_t>("n_shared_experts")) {
    experts.shared_F = *shared * experts.F;
  }
  experts.route.scale = static_cast<float>(keys.find<double>("routed_scaling_factor").value_or(1));
  experts.route.groups = keys.find<int64_t>("n_group").value_or(1);
  experts.route.kept_groups = keys.find<int64_t>("topk_group").value_or(1);
  if (const auto method = keys.find<std::string>("topk_method")) {
    if (*method == "greedy") {
      experts.route.groups = experts.route.kept_groups = 1;
    } else if (*method != "group_limited_greedy") {
      fail(ErrorCode::kUnsupported,
           "config.json: topk_method '{}' (known: greedy, group_limited_greedy)", *method);
    }
  }
  experts.sparse = read_sparse(keys, c.layers);
  return experts;
}

std::optional<LatentConfig> read_latent(const TableReader& keys) {
  const auto R = keys.find<int64_t>("kv_lora_rank");
  if (!R) return std::nullopt;
  return LatentConfig{.q_rank = keys.find<int64_t>("q_lora_rank").value_or(0),
                      .R = *R,
                      .Dn = keys.get<int64_t>("qk_nope_head_dim"),
                      .Dr = keys.get<int64_t>("qk_rope_head_dim"),
                      .Dv = keys.get<int64_t>("v_head_dim")};
}

void check_weights_are_plain(const JsonObject& config) {
  const auto quantized = config.object("quantization_config");
  if (!quantized) return;
  fail(ErrorCode::kUnsupported,
       "config.json: the weights are quantized by '{}' (quantization_config), which is not "
       "supported: use the model in f32, f16 or bf16, or a GGUF file",
       quantized->get_or<std::string>("quant_method", "an unnamed method"));
}

}  // namespace

ModelConfig hf_config(const JsonObject& config, std::string_view family) {
  check_weights_are_plain(config);
  const TableReader keys(config, "config.json", hf_keys(), family);
  ModelConfig c;
  c.name = config.get_or<std::string>("_name_or_path", "");
  c.layers = keys.get<int64_t>("num_hidden_layers");
  c.C = keys.get<int64_t>("hidden_size");
  c.F = keys.get<int64_t>("intermediate_size");
  c.V = keys.get<int64_t>("vocab_size");
  c.Hq = keys.get<int64_t>("num_attention_heads");
  c.Hkv = keys.find<int64_t>("num_key_value_heads").value_or(c.Hq);
  c.D = keys.find<int64_t>("head_dim").value_or(c.Hq > 0 ? c.C / c.Hq : 0);
  c.latent = read_latent(keys);
  if (c.latent) c.D = c.latent->Dn + c.latent->Dr;
  c.context = keys.get<int64_t>("max_position_embeddings");
  c.eps = static_cast<float>(keys.get<double>("rms_norm_eps"));
  c.rope = hf_rope(config, keys, c);
  c.qkv_bias = c.o_bias = keys.find<bool>("attention_bias").value_or(false);
  if (const auto own = keys.find<bool>("qkv_bias")) c.qkv_bias = *own;
  c.mlp_bias = keys.find<bool>("mlp_bias").value_or(false);
  c.tied_head = keys.get<bool>("tie_word_embeddings");
  c.activation = read_activation(keys.get<std::string>("hidden_act"));
  check_config(c, "config.json");
  c.experts = read_experts(keys, c);
  check_config(c, "config.json");
  c.windows = read_windows(keys, c.layers, family == "qwen2_moe");
  return c;
}

}  // namespace braid::decoder
