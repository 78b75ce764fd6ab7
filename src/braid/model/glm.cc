// GLM-4 in the two forms of its files: `glm` as transformers has it, and `chatglm` as the model's
// own code. RoPE turns neighbours in the first half of each head; q, k and v have biases; gate and
// up are one tensor, and in chatglm q, k and v, too.
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

// Gate, then up.
std::optional<PackedRows> gate_up(const ModelConfig& c, std::string_view canonical,
                                  std::string tensor) {
  PackedRows packed{.tensor = std::move(tensor), .tensor_rows = 2 * c.F};
  if (canonical.ends_with(".mlp.gate")) packed.rows = {{0, c.F}};
  if (canonical.ends_with(".mlp.up")) packed.rows = {{c.F, 2 * c.F}};
  return packed.rows.empty() ? std::nullopt : std::optional(std::move(packed));
}

std::optional<PackedRows> glm_packed(const ModelConfig& c, std::string_view canonical) {
  constexpr std::string_view kGate = ".mlp.gate", kUp = ".mlp.up";
  if (!canonical.ends_with(kGate) && !canonical.ends_with(kUp)) return std::nullopt;
  const std::string_view layer = canonical.substr(7, canonical.find('.', 7) - 7);
  return gate_up(c, canonical, fmt::format("model.layers.{}.mlp.gate_up_proj.weight", layer));
}

// All query heads, then k, then v.
std::optional<PackedRows> chat_packed(const ModelConfig& c, std::string_view canonical) {
  const int64_t q = c.Hq * c.D, kv = c.Hkv * c.D;
  const auto is = [&](std::string_view name) {
    return canonical.ends_with(name) || canonical.ends_with(fmt::format("{}.bias", name));
  };
  const auto rows = [&](int64_t begin, int64_t end) {
    return PackedRows{
        .tensor = chat_name(canonical), .rows = {{begin, end}}, .tensor_rows = q + 2 * kv};
  };
  if (is(".attn.q")) return rows(0, q);
  if (is(".attn.k")) return rows(q, q + kv);
  if (is(".attn.v")) return rows(q + kv, q + 2 * kv);
  if (is(".mlp.gate") || is(".mlp.up")) return gate_up(c, canonical, chat_name(canonical));
  return std::nullopt;
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
    .gguf_architectures = {},
    .hf_architectures = {"GlmForCausalLM"},
    .gguf_config = nullptr,
    .hf_config = glm_config,
    .gguf_name = decoder::gguf_name,
    .hf_name = decoder::hf_name,
    .forward = decoder::forward,
    .hf_packed = glm_packed,
};

const ModelFamily kChatGlm = {
    .name = "chatglm",
    .gguf_architectures = {},
    .hf_architectures = {"ChatGLMModel", "ChatGLMForConditionalGeneration"},
    .gguf_config = nullptr,
    .hf_config = chat_config,
    .gguf_name = decoder::gguf_name,
    .hf_name = chat_name,
    .forward = decoder::forward,
    .hf_packed = chat_packed,
};

}  // namespace braid
