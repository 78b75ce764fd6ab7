// Walks the tables of keys in config.json: each key has the effect that its cell says, in every
// family.
#include "braid/model/config_keys.h"

#include <gtest/gtest-spi.h>

#include <fstream>

#include "braid/model/family.h"
#include "unit/model/walk.h"

namespace braid {
namespace {

using test::json;
using test::Outcome;
using test::Trial;
using test::with;
using testing::HasSubstr;

const ModelFamily& family_named(std::string_view name) {
  for (const ModelFamily* family : model_families()) {
    if (family->name == name) return *family;
  }
  throw std::logic_error("no such family");
}

json hf_base() {
  return {{"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"vocab_size", 272},
          {"head_dim", 16},
          {"rms_norm_eps", 1e-5},
          {"num_experts_per_tok", 2},
          {"tie_word_embeddings", false},
          {"max_position_embeddings", 512}};
}

// chatglm calls its sizes otherwise.
json hf_base(std::string_view family) {
  if (family != "chatglm") return hf_base();
  return with(hf_base(), {{"num_layers", 2},
                          {"ffn_hidden_size", 96},
                          {"padded_vocab_size", 272},
                          {"kv_channels", 16},
                          {"multi_query_attention", true},
                          {"multi_query_group_num", 2},
                          {"seq_length", 512},
                          {"layernorm_epsilon", 1e-5}});
}

json yarn() {
  return {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
}

Outcome read_hf(std::string_view family, const json& keys) {
  return test::outcome(
      [&] { return family_named(family).hf_config(JsonObject("config.json", keys)); });
}

std::map<std::string, Trial> hf_trials(std::string_view family = "") {
  const bool normalises = family == "deepseek_v3" || family == "glm4_moe_lite";
  const json by_groups = {{"topk_method", "group_limited_greedy"}};
  const json window = {
      {"sliding_window", 8}, {"use_sliding_window", true}, {"max_window_layers", 1}};
  std::map<std::string, Trial> trials = {
      {"vocab_size", {300}},
      {"hidden_size", {128}},
      {"intermediate_size", {112}},
      {"num_hidden_layers", {3}},
      {"num_attention_heads", {8}},
      {"num_key_value_heads", {1}},
      {"head_dim", {32}},
      {"hidden_act", {"gelu_new"}},
      {"max_position_embeddings", {256}},
      {"rms_norm_eps", {1e-3}},
      {"tie_word_embeddings", {true}},
      {"attention_bias", {family != "glm"}},
      {"mlp_bias", {true}},
      {"sliding_window", {8, window}},
      {"use_sliding_window", {true, window}},
      {"max_window_layers", {0, window}},
      {"layer_types", {{"sliding_attention", "sliding_attention"}, window}},
      {"num_local_experts", {12}},
      {"num_experts", {16}},
      {"num_experts_per_tok", {3}},
      {"moe_intermediate_size", {48}},
      {"shared_expert_intermediate_size", {64}},
      {"norm_topk_prob", {!normalises}},
      {"n_routed_experts", {16}},
      {"n_shared_experts", {3}},
      {"first_k_dense_replace", {1}},
      {"mlp_layer_types", {{"sparse", "sparse"}}},
      {"routed_scaling_factor", {4.0}},
      {"topk_method", {"group_limited_greedy", {{"n_group", 4}, {"topk_group", 2}}}},
      {"n_group", {2, with(by_groups, {{"topk_group", 1}})}},
      {"topk_group", {2, with(by_groups, {{"n_group", 8}})}},
      {"q_lora_rank", {48}},
      {"kv_lora_rank", {256}},
      {"qk_nope_head_dim", {64}},
      {"qk_rope_head_dim", {32}},
      {"v_head_dim", {64}},
      {"rope_interleave", {false}},
      {"decoder_sparse_step", {2}},
      {"mlp_only_layers", {{0}}},
      {"qkv_bias", {false}},
      {"bias", {false}},
      {"num_layers", {3}},
      {"ffn_hidden_size", {112}},
      {"padded_vocab_size", {300}},
      {"kv_channels", {32}},
      {"multi_query_attention", {true, {{"multi_query_group_num", 2}}}},
      {"multi_query_group_num", {4}},
      {"seq_length", {256}},
      {"layernorm_epsilon", {1e-3}},
      {"add_qkv_bias", {true}},
      {"rope_ratio", {500.0}},
      {"add_bias_linear", {true}},
      {"rmsnorm", {false}},
      {"post_layer_norm", {false}},
      {"apply_residual_connection_post_layernorm", {true}},
      {"partial_rotary_factor", {1.0}},
      {"dual_chunk_attention_config",
       {{{"chunk_size", 300}, {"original_max_position_embeddings", 128}, {"local_size", 8}}}},
      {"rope_theta", {500.0}},
      {"rope_scaling", {{{"rope_type", "linear"}, {"factor", 2.0}}}},
      {"rope_parameters", {{{"rope_type", "linear"}, {"factor", 2.0}}}},
      {"original_max_position_embeddings", {32, {{"rope_scaling", yarn()}}}},
      {"is_causal", {false}},
      {"per_layer_config", {{{"0", {{"intermediate_size", 8}}}}}},
      {"text_config", {{{"hidden_size", 32}}}},
      {"quantization_config", {{{"quant_method", "awq"}, {"bits", 4}}}},
      {"torch_dtype", {"float16"}},
      {"dtype", {"float16"}},
      {"hidden_activation", {"relu"}},
  };
  for (const ConfigKey& key : hf_keys().keys) {
    trials.try_emplace(std::string(key.name), Trial{0.5});  // of keys that no family reads
  }
  return trials;
}

std::map<std::string, Trial> rope_trials() {
  return {
      {"rope_theta", {500.0}},
      {"factor", {3.0}},
      {"original_max_position_embeddings", {32}},
      {"low_freq_factor", {2.0}},
      {"high_freq_factor", {8.0}},
      {"attention_factor", {1.5}},
      {"mscale", {0.5, {{"mscale_all_dim", 1.0}}}},
      {"mscale_all_dim", {0.5, {{"mscale", 1.0}}}},
      {"beta_fast", {8.0}},
      {"beta_slow", {2.0}},
      {"truncate", {false}},
      {"partial_rotary_factor", {0.5}},
      {"short_factor", {{1.0, 2.0}}},
      {"long_factor", {{1.0, 2.0}}},
      {"mrope_section", {{4, 2, 2}}},
  };
}

TEST(ConfigKeys, ConfigJsonIsReadAsTheTableSays) {
  for (const std::string_view family : hf_keys().columns) {
    const auto read = [&](const json& keys) { return read_hf(family, keys); };
    const json base = hf_base(family);
    ASSERT_TRUE(std::holds_alternative<ModelConfig>(read(base)));
    test::walk(hf_keys(), family, base, hf_trials(family), read);
    test::walk_null(hf_keys(), family, base, hf_trials(family), read);
  }
}

TEST(ConfigKeys, RopeParametersAreReadAsTheTableSays) {
  for (const std::string_view type : hf_rope_keys().columns) {
    for (const std::string_view family : hf_keys().columns) {
      if (family == "chatglm") continue;  // does not know the object
      const auto read = [&](const json& keys) {
        return read_hf(family, with(hf_base(), {{"rope_parameters", keys}}));
      };
      json base = {{"rope_type", type},
                   {"factor", 4.0},
                   {"low_freq_factor", 1.0},
                   {"high_freq_factor", 4.0}};
      std::vector<ConfigKey> walked(hf_rope_keys().keys.begin(), hf_rope_keys().keys.end());
      const bool latent = family.starts_with("deepseek") || family == "glm4_moe_lite";
      if (latent && type == "yarn") {  // wants the original length
        constexpr const char* kOriginal = "original_max_position_embeddings";
        EXPECT_THAT(test::text_of(read(base)), HasSubstr(kOriginal));
        std::erase_if(walked, [&](const ConfigKey& k) { return k.name == kOriginal; });
        base[kOriginal] = 64;
      }
      ASSERT_TRUE(std::holds_alternative<ModelConfig>(read(base)));
      if (family == "glm") {  // turns half a head unless told otherwise
        std::erase_if(walked, [](const ConfigKey& k) { return k.name == "partial_rotary_factor"; });
        const auto turned = [&](const json& keys) {
          return std::get<ModelConfig>(read(with(base, keys))).rope.rotary_dim;
        };
        EXPECT_EQ(turned(json::object()), 8);
        EXPECT_EQ(turned({{"partial_rotary_factor", 1.0}}), 16);
      }
      const KeyTable table = {hf_rope_keys().title, hf_rope_keys().columns, walked};
      test::walk(table, type, base, rope_trials(), read);
      test::walk_null(table, type, base, rope_trials(), read);
    }
  }
}

TEST(ConfigKeys, DocsShowTheTables) {
  std::ifstream file(BRAID_TEST_DATA "/../docs/model-files.md");
  const std::string docs{std::istreambuf_iterator<char>(file), {}};
  for (const KeyTable* table : {&hf_keys(), &hf_rope_keys(), &gguf_keys()}) {
    EXPECT_NE(docs.find(to_markdown(*table)), std::string::npos)
        << "docs/model-files.md lacks this table:\n"
        << to_markdown(*table);
  }
}

// The walk sees what it is for: cells that do not tell the truth.
TEST(ConfigKeys, TheWalkCatchesWrongCells) {
  const auto read = [](const json& keys) { return read_hf("llama", keys); };
  constexpr auto kColumns = std::to_array<std::string_view>({"llama"});
  for (const auto& [key, cell] : {std::pair("sliding_window", "4096"),
                                  {"vocab_size", "-"},
                                  {"mlp_bias", "!"},
                                  {"vocab_size", "31999"},
                                  {"rms_norm_eps", "*"}}) {
    const ConfigKey wrong = {key, {cell}, ""};
    const KeyTable table = {"wrong", kColumns, {&wrong, 1}};
    testing::TestPartResultArray failures;
    {
      testing::ScopedFakeTestPartResultReporter reporter(
          testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
      test::walk(table, "llama", hf_base(), hf_trials(), read);
    }
    EXPECT_GE(failures.size(), 1) << key << " " << cell;
  }
}

}  // namespace
}  // namespace braid
