// What each family does with each key. The first two tables follow the configuration and model
// classes of transformers 5, the third llama.cpp's loader.
#include "braid/model/config_keys.h"

namespace braid {
namespace {

constexpr auto kFamilies = std::to_array<std::string_view>({"llama", "mistral", "qwen2", "qwen3"});

constexpr auto kHfKeys = std::to_array<ConfigKey>({
    {"vocab_size", {"32000", "32000", "151936", "151936"}, ""},
    {"hidden_size", {"4096", "4096", "4096", "4096"}, ""},
    {"intermediate_size", {"11008", "14336", "22016", "22016"}, ""},
    {"num_hidden_layers", {"32", "32", "32", "32"}, ""},
    {"num_attention_heads", {"32", "32", "32", "32"}, ""},
    {"num_key_value_heads", {"null", "8", "32|null", "32|null"}, "null: as many as heads"},
    {"head_dim", {"null", "null", "~", "128"}, "null or none: hidden_size / num_attention_heads"},
    {"hidden_act",
     {R"("silu")", R"("silu")", R"("silu")", R"("silu")"},
     "silu, swish, gelu_pytorch_tanh or gelu_new"},
    {"max_position_embeddings", {"2048", "131072", "32768", "32768"}, "the longest context"},
    {"rms_norm_eps", {"1e-06", "1e-06", "1e-06", "1e-06"}, ""},
    {"tie_word_embeddings",
     {"false", "false", "false", "false"},
     "a file that holds both tensors has both used"},
    {"attention_bias", {"false", "-", "-", "false"}, "Qwen2: biases on Q, K and V always"},
    {"mlp_bias", {"false", "-", "-", "-"}, ""},
    {"sliding_window", {"-", "4096|null", "4096|null", "4096|null"}, "null: full attention"},
    {"use_sliding_window", {"-", "-", "false", "false"}, ""},
    {"max_window_layers", {"-", "-", "28", "28"}, "the first layer with a window"},
    {"layer_types",
     {"-", "!", "null", "null"},
     "full_attention or sliding_attention for each layer; null: by max_window_layers"},
    {"rope_theta", {"10000.0", "10000.0", "10000.0", "10000.0"}, "unless rope_parameters has it"},
    {"rope_scaling",
     {"null", "null", "null", "null"},
     "where it is not empty, it stands for all of rope_parameters"},
    {"rope_parameters", {"null", "null", "null", "null"}, "see the next table"},
    {"original_max_position_embeddings",
     {"~", "~", "~", "~"},
     "wins over the one in rope_parameters"},
    {"partial_rotary_factor",
     {"-", "-", "-", "-"},
     "with a rope_type other than default as in rope_parameters"},
    {"is_causal", {"!true", "!true", "!true", "!true"}, "attention to later tokens"},
    {"per_layer_config", {"!{}", "!{}", "!{}", "!{}"}, "sizes that differ between layers"},
    {"text_config", {"!", "!", "!", "!"}, "a model of text and images"},
    {"quantization_config",
     {"!", "!", "!", "!"},
     "quantized weights are read from GGUF files, these folders hold others"},
    {"torch_dtype", {"-", "-", "-", "-"}, "weights are used as they are stored"},
    {"dtype", {"-", "-", "-", "-"}, "weights are used as they are stored"},
    {"pad_token_id", {"-", "-", "-", "-"}, ""},
    {"attention_dropout", {"-", "-", "-", "-"}, ""},
    {"pretraining_tp", {"-", "-", "-", "-"}, ""},
    {"use_cache", {"-", "-", "-", "-"}, ""},
    {"is_decoder", {"-", "-", "-", "-"}, ""},
    {"hidden_activation", {"-", "-", "-", "-"}, ""},
    {"qkv_bias", {"-", "-", "-", "-"}, ""},
    {"use_qk_norm", {"-", "-", "-", "-"}, ""},
    {"attention_chunk_size", {"-", "-", "-", "-"}, ""},
    {"attn_logit_softcapping", {"-", "-", "-", "-"}, ""},
    {"final_logit_softcapping", {"-", "-", "-", "-"}, ""},
    {"logits_scaling", {"-", "-", "-", "-"}, ""},
    {"logit_scale", {"-", "-", "-", "-"}, ""},
    {"attention_multiplier", {"-", "-", "-", "-"}, ""},
    {"embedding_multiplier", {"-", "-", "-", "-"}, ""},
    {"residual_multiplier", {"-", "-", "-", "-"}, ""},
    {"rope_interleaved", {"-", "-", "-", "-"}, ""},
    {"rotary_pct", {"-", "-", "-", "-"}, ""},
    {"layer_norm_eps", {"-", "-", "-", "-"}, ""},
});

constexpr auto kRopeTypes =
    std::to_array<std::string_view>({"default", "linear", "dynamic", "llama3", "yarn"});

constexpr auto kRopeKeys = std::to_array<ConfigKey>({
    {"rope_theta", {"~", "~", "~", "~", "~"}, "none: the one beside rope_parameters"},
    {"factor",
     {"-", "*", "-", "*", "*|null"},
     "null: max_position_embeddings / original_max_position_embeddings"},
    {"original_max_position_embeddings",
     {"-", "-", "-", "~", "~"},
     "none: max_position_embeddings"},
    {"low_freq_factor", {"-", "-", "-", "*", "-"}, ""},
    {"high_freq_factor", {"-", "-", "-", "*", "-"}, ""},
    {"attention_factor",
     {"-", "-", "-", "-", "null"},
     "null: from factor, mscale and mscale_all_dim"},
    {"mscale", {"-", "-", "-", "-", "null"}, "counts beside mscale_all_dim, neither of them 0"},
    {"mscale_all_dim", {"-", "-", "-", "-", "null"}, ""},
    {"beta_fast", {"-", "-", "-", "-", "32|null"}, "null or 0: 32"},
    {"beta_slow", {"-", "-", "-", "-", "1|null"}, "null or 0: 1"},
    {"truncate", {"-", "-", "-", "-", "true|null"}, "null: false"},
    {"partial_rotary_factor",
     {"-", "!1.0", "!1.0", "!1.0", "!1.0"},
     "the classes turn whole heads"},
    {"short_factor", {"-", "-", "-", "-", "-"}, ""},
    {"long_factor", {"-", "-", "-", "-", "-"}, ""},
    {"mrope_section", {"-", "-", "-", "-", "-"}, ""},
});

constexpr auto kArchitectures = std::to_array<std::string_view>({"llama", "qwen2", "qwen3"});

constexpr auto kGgufKeys = std::to_array<ConfigKey>({
    {"block_count", {"*", "*", "*"}, ""},
    {"context_length", {"*", "*", "*"}, ""},
    {"embedding_length", {"*", "*", "*"}, ""},
    {"feed_forward_length", {"*", "*", "*"}, "or an array, equal for all layers"},
    {"attention.head_count", {"*", "*", "*"}, "or an array, equal for all layers"},
    {"attention.head_count_kv",
     {"~", "~", "~"},
     "or an array, equal for all layers; none: as many as heads"},
    {"attention.key_length", {"~", "~", "~"}, "none: embedding_length / attention.head_count"},
    {"attention.value_length", {"~", "~", "~"}, "as long as a key"},
    {"attention.layer_norm_rms_epsilon", {"*", "*", "*"}, ""},
    {"rope.dimension_count", {"~", "~", "~"}, "none: the whole head, which a llama has to turn"},
    {"rope.freq_base", {"10000.0", "10000.0", "10000.0"}, ""},
    {"rope.scaling.type", {R"("linear")", R"("linear")", R"("linear")"}, "none, linear or yarn"},
    {"rope.scaling.factor", {"~", "~", "~"}, "not with type none; none or 0: 1"},
    {"rope.scale_linear", {"~", "~", "~"}, "stands for a missing rope.scaling.factor"},
    {"rope.scaling.original_context_length", {"~", "~", "~"}, "YaRN; none or 0: context_length"},
    {"rope.scaling.attn_factor", {"1.0", "1.0", "1.0"}, "with any type"},
    {"expert_count", {"!0", "!0", "!0"}, "a mixture of experts"},
    {"expert_used_count", {"!0", "!0", "!0"}, "a mixture of experts"},
    {"attention.causal", {"!true", "!true", "!true"}, "attention to later tokens"},
    {"attention.sliding_window", {"-", "-", "-"}, ""},
    {"rope.scaling.finetuned", {"-", "-", "-"}, ""},
    {"rope.scaling.yarn_beta_fast", {"-", "-", "-"}, "32 always"},
    {"rope.scaling.yarn_beta_slow", {"-", "-", "-"}, "1 always"},
    {"rope.scaling.yarn_ext_factor", {"-", "-", "-"}, ""},
    {"rope.scaling.yarn_attn_factor", {"-", "-", "-"}, ""},
    {"rope.scaling.yarn_log_multiplier", {"-", "-", "-"}, ""},
    {"rope.dimension_sections", {"-", "-", "-"}, ""},
    {"attention.layer_norm_epsilon", {"-", "-", "-"}, ""},
    {"attention.scale", {"-", "-", "-"}, ""},
    {"attention.clamp_kqv", {"-", "-", "-"}, ""},
    {"attn_logit_softcapping", {"-", "-", "-"}, ""},
    {"final_logit_softcapping", {"-", "-", "-"}, ""},
    {"logit_scale", {"-", "-", "-"}, ""},
    {"embedding_scale", {"-", "-", "-"}, ""},
    {"residual_scale", {"-", "-", "-"}, ""},
    {"vocab_size", {"-", "-", "-"}, "the rows of token_embd.weight"},
    {"pooling_type", {"-", "-", "-"}, ""},
    {"tensor_data_layout", {"-", "-", "-"}, ""},
});

}  // namespace

const KeyTable& hf_keys() {
  static const KeyTable kTable = {"config.json", kFamilies, kHfKeys};
  return kTable;
}

const KeyTable& hf_rope_keys() {
  static const KeyTable kTable = {"rope_parameters", kRopeTypes, kRopeKeys};
  return kTable;
}

const KeyTable& gguf_keys() {
  static const KeyTable kTable = {"GGUF", kArchitectures, kGgufKeys};
  return kTable;
}

}  // namespace braid
