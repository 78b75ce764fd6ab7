// GLM-4 in the two forms of its files: `glm` as transformers has it, and `chatglm` as the model's
// own code. RoPE turns neighbours in the first half of each head; q, k and v have biases; gate and
// up are one tensor, and in chatglm q, k and v, too. GLM-4-0414, `glm4`, has two more norms a
// layer.
#include <array>

#include "braid/model/decoder.h"

namespace braid {
namespace {

using decoder::NamePair;

constexpr auto kChatNames = std::to_array<NamePair>({
    {"token_embd", "transformer.embedding.word_embeddings"},
    {"output_norm", "transformer.encoder.final_layernorm"},
    {"lm_head", "transformer.output_layer"},
    {"attn_norm", "input_layernorm"},
    {"attn.q", "self_attention.query_key_value"},
    {"attn.k", "self_attention.query_key_value"},
    {"attn.v", "self_attention.query_key_value"},
    {"attn.o", "self_attention.dense"},
    {"mlp_norm", "post_attention_layernorm"},
    {"mlp.gate", "mlp.dense_h_to_4h"},
    {"mlp.up", "mlp.dense_h_to_4h"},
    {"mlp.down", "mlp.dense_4h_to_h"},
});

std::string chat_name(std::string_view canonical) {
  return decoder::name_by(kChatNames, "transformer.encoder.layers.", canonical);
}

std::string replaced(std::string name, std::string_view from, std::string_view to) {
  const size_t at = name.find(from);
  return at == std::string::npos ? name : name.replace(at, from.size(), to);
}

std::string glm_name(std::string_view canonical) {
  std::string name = decoder::hf_name(canonical);
  for (const std::string_view part : {"mlp.gate_proj", "mlp.up_proj"}) {
    name = replaced(std::move(name), part, "mlp.gate_up_proj");
  }
  return name;
}

std::string glm_gguf_name(std::string_view canonical) {
  return replaced(decoder::gguf_name(canonical), "ffn_gate.", "ffn_up.");
}

std::string chat_gguf_name(std::string_view canonical) {
  std::string name = glm_gguf_name(canonical);
  for (const std::string_view part : {"attn_q.", "attn_k.", "attn_v."}) {
    name = replaced(std::move(name), part, "attn_qkv.");
  }
  return name;
}

// Gate, then up.
std::optional<PackedRows> glm_packed(const ModelConfig& c, std::string_view canonical) {
  if (canonical.ends_with(".mlp.gate")) return PackedRows{{{0, c.F}}, 2 * c.F};
  if (canonical.ends_with(".mlp.up")) return PackedRows{{{c.F, 2 * c.F}}, 2 * c.F};
  return std::nullopt;
}

// All query heads, then k, then v.
std::optional<PackedRows> chat_packed(const ModelConfig& c, std::string_view canonical) {
  const int64_t q = c.Hq * c.D, kv = c.Hkv * c.D;
  const auto is = [&](std::string_view name) {
    return canonical.ends_with(name) || canonical.ends_with(fmt::format("{}.bias", name));
  };
  if (is(".attn.q")) return PackedRows{{{0, q}}, q + 2 * kv};
  if (is(".attn.k")) return PackedRows{{{q, q + kv}}, q + 2 * kv};
  if (is(".attn.v")) return PackedRows{{{q + kv, q + 2 * kv}}, q + 2 * kv};
  return glm_packed(c, canonical);
}

bool has(const GgufFile& file, std::string_view tensor) {
  return file.contents().tensors.find(tensor) != nullptr;
}

// llama.cpp's converter calls both forms chatglm and keeps their rows: q, k and v are one tensor,
// or apart. The family glm4 has the metadata keys of chatglm.
ModelConfig gguf_config(const GgufFile& file) {
  ModelConfig c = decoder::gguf_config(
      file, {.pairing = ops::RopePairing::interleaved, .turns_parts = true, .column = "chatglm"});
  c.qkv_bias = c.qkv_bias || has(file, "blk.0.attn_qkv.bias");
  return c;
}

ModelConfig glm_config(const JsonObject& config) {
  ModelConfig c = decoder::hf_config(config, "glm");
  const TableReader keys(config, "config.json", hf_keys(), "glm");
  c.o_bias = false;
  double turned = keys.get<double>("partial_rotary_factor");
  if (const auto rope = config.object("rope_parameters")) {
    turned = rope->find<double>("partial_rotary_factor").value_or(turned);
  }
  c.rope.pairing = ops::RopePairing::interleaved;
  c.rope.rotary_dim = static_cast<int64_t>(static_cast<double>(c.D) * turned);
  check_config(c, "config.json");
  return c;
}

ModelConfig chat_config(const JsonObject& config) {
  const TableReader keys(config, "config.json", hf_keys(), "chatglm");
  ModelConfig c;
  c.name = config.get_or<std::string>("_name_or_path", "");
  c.layers = keys.get<int64_t>("num_layers");
  c.C = keys.get<int64_t>("hidden_size");
  c.F = keys.get<int64_t>("ffn_hidden_size");
  c.V = keys.get<int64_t>("padded_vocab_size");
  c.Hq = keys.get<int64_t>("num_attention_heads");
  const bool grouped = keys.get<bool>("multi_query_attention");
  c.Hkv = grouped ? keys.get<int64_t>("multi_query_group_num") : c.Hq;
  c.D = keys.get<int64_t>("kv_channels");
  c.context = keys.get<int64_t>("seq_length");
  c.eps = static_cast<float>(keys.get<double>("layernorm_epsilon"));
  c.qkv_bias = keys.get<bool>("add_qkv_bias");
  c.tied_head = keys.get<bool>("tie_word_embeddings");
  c.rope = {.head_dim = c.D, .rotary_dim = c.D / 2, .pairing = ops::RopePairing::interleaved};
  c.rope.theta = static_cast<float>(10000 * keys.get<double>("rope_ratio"));
  check_config(c, "config.json");
  c.windows.assign(c.layers, 0);
  return c;
}

}  // namespace

const ModelFamily kGlm = {
    .name = "glm",
    .gguf_architectures = {"chatglm"},
    .hf_architectures = {"GlmForCausalLM"},
    .gguf_config = gguf_config,
    .hf_config = glm_config,
    .gguf_name = glm_gguf_name,
    .hf_name = glm_name,
    .forward = decoder::forward,
    .packed = glm_packed,
};

// GLM-4-0414.
const ModelFamily kGlm4 = {
    .name = "glm4",
    .gguf_architectures = {"glm4"},
    .hf_architectures = {"Glm4ForCausalLM"},
    .gguf_config = gguf_config,
    .hf_config = glm_config,
    .gguf_name = glm_gguf_name,
    .hf_name = glm_name,
    .forward = decoder::forward_with_out_norms,
    .packed = glm_packed,
};

const ModelFamily kChatGlm = {
    .name = "chatglm",
    .gguf_architectures = {"chatglm"},
    .hf_architectures = {"ChatGLMModel", "ChatGLMForConditionalGeneration"},
    .gguf_config = gguf_config,
    .hf_config = chat_config,
    .gguf_name = chat_gguf_name,
    .hf_name = chat_name,
    .forward = decoder::forward,
    .gguf_takes = [](const GgufFile& file) { return has(file, "blk.0.attn_qkv.weight"); },
    .packed = chat_packed,
};

}  // namespace braid
