#include <array>

#include "braid/model/decoder.h"

namespace braid::decoder {
namespace {

struct Names {
  std::string_view canonical;
  std::string_view gguf;
  std::string_view hf;
};

constexpr std::array<Names, 4> kTopNames = {{
    {"token_embd", "token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm", "output_norm.weight", "model.norm.weight"},
    {"lm_head", "output.weight", "lm_head.weight"},
    {"rope_factors", "rope_freqs.weight", ""},
}};

// Behind "layers.N." here, "blk.N." in GGUF and "model.layers.N." at Hugging Face; ".weight" or
// ".bias" follows.
constexpr std::array<Names, 27> kLayerNames = {{
    {"attn_norm", "attn_norm", "input_layernorm"},
    {"attn.q", "attn_q", "self_attn.q_proj"},
    {"attn.k", "attn_k", "self_attn.k_proj"},
    {"attn.v", "attn_v", "self_attn.v_proj"},
    {"attn.o", "attn_output", "self_attn.o_proj"},
    {"attn.q_norm", "attn_q_norm", "self_attn.q_norm"},
    {"attn.k_norm", "attn_k_norm", "self_attn.k_norm"},
    {"attn.out_norm", "post_attention_norm", "post_self_attn_layernorm"},
    {"mlp_norm", "ffn_norm", "post_attention_layernorm"},
    {"mlp.gate", "ffn_gate", "mlp.gate_proj"},
    {"mlp.up", "ffn_up", "mlp.up_proj"},
    {"mlp.down", "ffn_down", "mlp.down_proj"},
    {"mlp.out_norm", "post_ffw_norm", "post_mlp_layernorm"},
    {"attn.q_a", "attn_q_a", "self_attn.q_a_proj"},
    {"attn.q_a_norm", "attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn.q_b", "attn_q_b", "self_attn.q_b_proj"},
    {"attn.kv_a", "attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn.kv_a_norm", "attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn.kv_b", "attn_kv_b", "self_attn.kv_b_proj"},
    {"attn.k_b", "attn_k_b", ""},
    {"attn.v_b", "attn_v_b", ""},
    {"mlp.router", "ffn_gate_inp", "mlp.gate"},
    {"mlp.choice", "exp_probs_b", "mlp.choice"},
    {"mlp.shared.gate", "ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"mlp.shared.up", "ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"mlp.shared.down", "ffn_down_shexp", "mlp.shared_expert.down_proj"},
    {"mlp.shared_gate", "ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
}};

std::string file_name(std::string_view canonical, std::string_view Names::*column,
                      std::string_view layer_prefix) {
  for (const Names& names : kTopNames) {
    if (names.canonical == canonical) return std::string(names.*column);
  }
  constexpr std::string_view kLayers = "layers.";
  constexpr std::string_view kBias = ".bias";
  BRAID_CHECK(canonical.starts_with(kLayers), "no weight is called '{}'", canonical);
  canonical.remove_prefix(kLayers.size());
  const size_t dot = canonical.find('.');
  const std::string_view layer = canonical.substr(0, dot);
  std::string_view rest = canonical.substr(dot + 1);
  const bool bias = rest.ends_with(kBias);
  if (bias) rest.remove_suffix(kBias.size());
  for (const Names& names : kLayerNames) {
    if (names.canonical != rest) continue;
    return fmt::format("{}{}.{}{}", layer_prefix, layer, names.*column, bias ? ".bias" : ".weight");
  }
  BRAID_CHECK(false, "no weight of a layer is called '{}'", rest);
}

}  // namespace

std::string name_by(std::span<const NamePair> names, std::string_view layer_prefix,
                    std::string_view canonical) {
  const auto stem = [&](std::string_view of) -> std::string_view {
    for (const NamePair& pair : names) {
      if (pair.canonical == of) return pair.file;
    }
    return {};
  };
  if (const auto top = stem(canonical); !top.empty()) return fmt::format("{}.weight", top);
  constexpr std::string_view kLayers = "layers.", kBias = ".bias";
  BRAID_CHECK(canonical.starts_with(kLayers), "no weight is called '{}'", canonical);
  const size_t dot = canonical.find('.', kLayers.size());
  std::string_view rest = canonical.substr(dot + 1);
  const bool bias = rest.ends_with(kBias);
  if (bias) rest.remove_suffix(kBias.size());
  BRAID_CHECK(!stem(rest).empty(), "no weight of a layer is called '{}'", rest);
  return fmt::format("{}{}.{}{}", layer_prefix,
                     canonical.substr(kLayers.size(), dot - kLayers.size()), stem(rest),
                     bias ? ".bias" : ".weight");
}

std::string gguf_name(std::string_view canonical) {
  return file_name(canonical, &Names::gguf, "blk.");
}

std::string hf_name(std::string_view canonical) {
  return file_name(canonical, &Names::hf, "model.layers.");
}

}  // namespace braid::decoder
