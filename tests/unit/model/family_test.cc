// Which family a config.json names, and what its windows and RoPE come to.
#include "braid/model/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "braid/model/model_shape.h"
#include "unit/io/expect_error.h"

namespace braid {
namespace {

using nlohmann::json;
using test::expect_error;
using testing::ElementsAre;
using testing::HasSubstr;

const ModelFamily& family(const json& config) {
  return family_of(JsonObject("config.json", config), "config.json");
}

ModelConfig read(std::string_view type, json config) {
  config["model_type"] = type;
  config.update({{"hidden_size", 64},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 16},
                 {"num_hidden_layers", 3},
                 {"max_position_embeddings", 256}});
  return family(config).hf_config(JsonObject("config.json", config));
}

TEST(ModelFamily, IsNamedByArchitecturesOrModelType) {
  EXPECT_EQ(&family({{"architectures", {"Qwen3ForCausalLM"}}}), &kQwen3);
  EXPECT_EQ(&family({{"model_type", "mistral"}}), &kMistral);
  EXPECT_EQ(&family({{"model_type", "llama"}, {"architectures", nullptr}}), &kLlama);
  EXPECT_EQ(&family({{"model_type", "llama"}, {"architectures", {"LLaMAForCausalLM"}}}), &kLlama);
  expect_error(ErrorCode::kUnsupported, {"'LlamaForCausalLM'", "'mistral'"}, [] {
    family({{"model_type", "mistral"}, {"architectures", {"LlamaForCausalLM"}}});
  });
  expect_error(
      ErrorCode::kUnsupported,
      {"'gpt2'",
       "llama, mistral, qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3, "
       "glm4_moe_lite, internlm2, glm, glm4, chatglm"},
      [] {
        family({{"model_type", "gpt2"}});
      });
  expect_error(ErrorCode::kUnsupported, {"no architectures", "''"}, [] { family(json::object()); });
  expect_error(ErrorCode::kUnsupported, {"'LlamaForSequenceClassification'"}, [] {
    family({{"model_type", "llama"}, {"architectures", {"LlamaForSequenceClassification"}}});
  });
}

// Qwen2.5-1M ends where dual chunk attention begins, and says so; a longer context is asked for.
TEST(HfConfig, QwenEndsWhereDualChunksBegin) {
  ModelConfig c = read_model_shape(BRAID_TEST_DATA "/../configs/qwen2.5-7b-1m.json").config;
  EXPECT_EQ(c.context, 262144);
  ASSERT_EQ(c.remarks.size(), 1u);
  EXPECT_THAT(c.remarks[0], HasSubstr("more than 262144 tokens take dual chunk attention"));
  EXPECT_THAT(c.remarks[0], HasSubstr("not 1010000"));
  ASSERT_TRUE(c.dual.has_value());
  EXPECT_EQ(c.dual->chunks.chunk, 253952);
  EXPECT_EQ(c.dual->chunks.moves(1000000, 253951), 262144 - 1000000);
  EXPECT_EQ(c.dual->chunks.moves(262144, 0), 0);
  EXPECT_EQ(c.dual->chunks.moves(262145, 0), -1);
  EXPECT_EQ(c.dual->chunks.growth(262143), 1);
  EXPECT_NEAR(c.dual->chunks.growth(1009999), std::pow(1 + 0.1 * std::log(1010000 / 262144.0), 2),
              1e-12);
  for (const auto& [tokens, context] :
       {std::pair(100, 262144), {262145, 262145}, {1010000, 1010000}, {1 << 20, 1010000}}) {
    stretch_context(c, tokens);
    EXPECT_EQ(c.context, context);
  }
}

TEST(HfConfig, ChunksThatMakeNoAttentionAreRefused) {
  const auto refuses = [](const json& chunks, const std::vector<std::string>& words) {
    expect_error(ErrorCode::kMalformed, words, [&] {
      read("qwen2", {{"dual_chunk_attention_config", chunks}});
    });
  };
  refuses({{"chunk_size", 24}, {"local_size", 13}}, {"local_size is 13", "1 to 11"});
  refuses({{"chunk_size", 24}, {"local_size", 24}}, {"chunk_size - local_size is 0", "1 to 23"});
  refuses({{"chunk_size", 24}, {"local_size", 0}}, {"chunk_size - local_size is 24", "1 to 23"});
  refuses({{"chunk_size", 24}, {"local_size", -5000000000}}, {"chunk_size - local_size is 0"});
  refuses({{"chunk_size", -1}, {"local_size", 1}}, {"chunk_size is -1"});
  refuses({{"chunk_size", 24}, {"local_size", 5}, {"original_max_position_embeddings", -3}},
          {"original_max_position_embeddings is -3"});
}

// The sizes that these models are known by.
TEST(HfConfig, LongModelsHaveTheirSizes) {
  const auto shape = [](const char* name) {
    return read_model_shape(fmt::format("{}/../configs/{}.json", BRAID_TEST_DATA, name)).config;
  };
  const ModelConfig glm = shape("glm-4-9b-1m"), intern = shape("internlm2.5-7b-1m");
  EXPECT_EQ(glm.rope.rotary_dim, 64);
  EXPECT_EQ(glm.rope.pairing, ops::RopePairing::interleaved);
  EXPECT_TRUE(glm.qkv_bias && !glm.o_bias);
  EXPECT_EQ(glm.context, 1048576);
  EXPECT_EQ(2 * glm.layers * glm.cached_numbers(), 81920) << "bytes of a token's keys in bf16";
  EXPECT_FALSE(intern.qkv_bias);
  EXPECT_EQ(2 * intern.layers * intern.cached_numbers(), 131072);
  ModelConfig longer = intern;
  stretch_context(longer, 262144);
  EXPECT_EQ(longer, intern);
  stretch_context(longer, 1 << 20);  // 2.5 x 4 - 1.5 to the power of 128 / 126
  EXPECT_EQ(longer.context, 1 << 20);
  EXPECT_NEAR(longer.rope.theta, 5e7 * 8.5 * std::pow(8.5, 1 / 63.0), 100);
  ModelConfig same = glm;
  stretch_context(same, 1 << 21);
  EXPECT_EQ(same, glm) << "no dynamic RoPE";
  EXPECT_EQ(shape("glm-4-9b").Hkv, 2);
  const ModelConfig glm4 = shape("glm-4-9b-0414");
  EXPECT_EQ(glm4.context, 32768);
  EXPECT_EQ(glm4.rope.rotary_dim, 64);
  EXPECT_TRUE(glm4.qkv_bias && !glm4.o_bias);
  EXPECT_EQ(2 * glm4.layers * glm4.cached_numbers(), 40960);
  const ModelConfig qwen3 = shape("qwen3-4b-instruct-2507"), llama = shape("llama-3.1-8b");
  EXPECT_EQ(qwen3.context, 262144);
  EXPECT_EQ(qwen3.rope.theta, 5e6f);
  EXPECT_EQ(2 * qwen3.layers * qwen3.cached_numbers(), 147456);
  EXPECT_EQ(llama.context, 131072);
  EXPECT_EQ(llama.rope.scaling, ops::RopeScaling::llama3);
  EXPECT_EQ(llama.rope.factor, 8);
  EXPECT_EQ(llama.rope.original_context, 8192);
  const ModelConfig qwen14 = shape("qwen2.5-14b-1m");
  EXPECT_EQ(qwen14.context, 262144);
  EXPECT_EQ(qwen14.dual->chunks.chunk, 253952);
  EXPECT_EQ(2 * qwen14.layers * qwen14.cached_numbers(), 196608);
  ModelConfig intern2 = shape("internlm2-7b");
  EXPECT_EQ(intern2.context, 32768);
  EXPECT_EQ(intern2.rope.theta, 1e6f);
  stretch_context(intern2, 65536);  // 2 x 2 - 1 to the power of 128 / 126
  EXPECT_EQ(intern2.context, 65536);
  EXPECT_NEAR(intern2.rope.theta, 1e6 * 3 * std::pow(3, 1 / 63.0), 10);
  EXPECT_EQ(shape("llama-3-8b-1m").context, 1048576);
}

// Counts that make no mixture, each by its name, its value and the limit.
TEST(HfConfig, ExpertsThatMakeNoModelAreRefused) {
  const auto refuses = [](const json& keys, const std::vector<std::string>& words) {
    expect_error(ErrorCode::kMalformed, words, [&] { read("qwen3_moe", keys); });
  };
  refuses({{"num_experts", 8}, {"num_experts_per_tok", 9}}, {"of a token is 9", "1 to 8"});
  refuses({{"num_experts", 0}}, {"number of experts is 0", "1 to 1024"});
  refuses({{"num_experts", -3}}, {"number of experts is -3"});
  refuses({{"num_experts", 1025}}, {"number of experts is 1025", "1 to 1024"});
  refuses({{"num_experts_per_tok", 0}}, {"of a token is 0", "1 to 128"});
  refuses({{"moe_intermediate_size", 0}}, {"width of an expert is 0"});
  refuses({{"decoder_sparse_step", 0}}, {"decoder_sparse_step is 0", "3 layers"});
  const auto refuses_v3 = [](const json& keys, const std::vector<std::string>& words,
                             ErrorCode code = ErrorCode::kMalformed) {
    json all = {
        {"n_routed_experts", 64}, {"num_experts_per_tok", 6}, {"n_group", 1}, {"topk_group", 1}};
    all.update(keys);
    expect_error(code, words, [&] { read("deepseek_v3", all); });
  };
  const auto groups = [](int n, int kept) { return json{{"n_group", n}, {"topk_group", kept}}; };
  refuses_v3(groups(3, 1), {"64 experts", "groups", "3"});
  refuses_v3(groups(4, 5), {"keeps is 5", "1 to 4"});
  refuses_v3(groups(16, 1), {"the 1 groups", "have 4 experts, wanted are 6"});
  refuses_v3({{"kv_lora_rank", 0}}, {"kv_lora_rank", "is 0"});
  refuses_v3({{"qk_rope_head_dim", 7}}, {"rotary dimension is 7", "even"});
  refuses_v3({{"qk_nope_head_dim", 0}}, {"other columns of a key is 0"});
  json yarn = {{"type", "yarn"}, {"factor", 4.0}};
  refuses_v3({{"rope_scaling", yarn}},
             {"original_max_position_embeddings is missing", "max_position_embeddings, 256"});
  yarn["original_max_position_embeddings"] = 0;
  refuses_v3({{"rope_scaling", yarn}}, {"original context length", "is 0"});
  refuses_v3({{"kv_lora_rank", 1024}}, {"latent of 1024", "640"}, ErrorCode::kUnsupported);
  expect_error(ErrorCode::kUnsupported, {"topk_method 'noaux_tc'", "greedy"}, [&] {
    read("deepseek_v2", {{"topk_method", "noaux_tc"}, {"num_experts_per_tok", 2}});
  });
  const ModelConfig c =
      read("qwen3_moe", {{"mlp_only_layers", {1, 7}}, {"decoder_sparse_step", 2}});
  EXPECT_THAT(c.experts->sparse, ElementsAre(false, false, false));
  EXPECT_TRUE(read("qwen3_moe", {{"mlp_only_layers", {1}}}).sparse(2));
  EXPECT_FALSE(read("qwen3", json::object()).experts);
}

TEST(HfConfig, WindowsFollowTheFamily) {
  const json window = {{"sliding_window", 8}};
  EXPECT_THAT(read("llama", window).windows, ElementsAre(0, 0, 0));
  EXPECT_THAT(read("mistral", window).windows, ElementsAre(8, 8, 8));
  EXPECT_THAT(read("mistral", {{"sliding_window", nullptr}}).windows, ElementsAre(0, 0, 0));
  EXPECT_THAT(read("mistral", json::object()).windows, ElementsAre(4096, 4096, 4096));
  EXPECT_THAT(read("qwen2", window).windows, ElementsAre(0, 0, 0));
  const json on = {{"sliding_window", 8}, {"use_sliding_window", true}};
  EXPECT_THAT(read("qwen2", on).windows, ElementsAre(0, 0, 0)) << "28 layers come before a window";
  json some = on;
  some["max_window_layers"] = 1;
  EXPECT_THAT(read("qwen3", some).windows, ElementsAre(0, 8, 8));
  EXPECT_THAT(read("qwen2_moe", some).windows, ElementsAre(8, 0, 0));
  some["layer_types"] = {"sliding_attention", "attention", "full_attention"};
  EXPECT_THAT(read("qwen3", some).windows, ElementsAre(8, 0, 0));
  some["use_sliding_window"] = false;
  expect_error(ErrorCode::kMalformed, {"layer_types", "layer 0"}, [&] { read("qwen3", some); });
  expect_error(ErrorCode::kUnsupported, {"'chunked_attention'"}, [&] {
    read("qwen2", {{"layer_types", {"chunked_attention", "attention", "attention"}}});
  });
  expect_error(ErrorCode::kMalformed, {"layer_types", "1 entries for 3"}, [&] {
    read("qwen2", {{"layer_types", {"full_attention"}}});
  });
  for (const int64_t bad : {int64_t{0}, int64_t{-4}, int64_t{1} << 40}) {
    expect_error(ErrorCode::kMalformed, {"sliding_window", std::to_string(bad)}, [&] {
      read("mistral", {{"sliding_window", bad}});
    });
  }
}

TEST(HfConfig, YarnsAttentionFactor) {
  const auto factor = [](const json& keys) {
    json rope = {{"type", "yarn"}, {"factor", 16.0}, {"original_max_position_embeddings", 64}};
    rope.update(keys);
    return read("qwen2", {{"rope_scaling", rope}}).rope.attention_factor;
  };
  const auto mscale = [](double m) { return 0.1 * m * std::log(16.0) + 1; };
  EXPECT_FLOAT_EQ(factor(json::object()), mscale(1));
  EXPECT_FLOAT_EQ(factor({{"mscale", 1.0}, {"mscale_all_dim", 1.0}}), 1);
  EXPECT_FLOAT_EQ(factor({{"mscale", 0.7}, {"mscale_all_dim", 1.5}}), mscale(0.7) / mscale(1.5));
  EXPECT_FLOAT_EQ(factor({{"mscale", 0.7}}), mscale(1));
  EXPECT_FLOAT_EQ(factor({{"mscale", 0.7}, {"mscale_all_dim", 0}}), mscale(1));
  EXPECT_FLOAT_EQ(factor({{"mscale", 0.7}, {"mscale_all_dim", 1.5}, {"attention_factor", 1.25}}),
                  1.25);
  EXPECT_FLOAT_EQ(factor({{"factor", 0.5}}), 1);
  EXPECT_FLOAT_EQ(factor({{"factor", nullptr}}), 0.1 * std::log(4.0) + 1) << "256 / 64";
}

TEST(HfConfig, RopeScalingStandsForAllOfRopeParameters) {
  const json scaling = {{"rope_type", "linear"}, {"factor", 2.0}};
  const ModelConfig both =
      read("qwen2", {{"rope_scaling", scaling},
                     {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}}});
  EXPECT_EQ(both.rope.factor, 2);
  EXPECT_EQ(both.rope.theta, 10000);
  ASSERT_EQ(both.remarks.size(), 1u);
  EXPECT_THAT(both.remarks[0], HasSubstr("rope_theta is 10000.0, not 1000000.0"));
  const ModelConfig top = read(
      "qwen2",
      {{"rope_theta", 1e6}, {"rope_scaling", scaling}, {"rope_parameters", {{"rope_theta", 1e6}}}});
  EXPECT_EQ(top.rope.theta, 1e6f);
  EXPECT_TRUE(top.remarks.empty());
  const ModelConfig empty =
      read("qwen2", {{"rope_scaling", json::object()}, {"rope_parameters", {{"rope_theta", 1e6}}}});
  EXPECT_EQ(empty.rope.theta, 1e6f);
}

TEST(HfConfig, WhatIsNotSupportedIsNamed) {
  const auto refused = [](ErrorCode code, const std::vector<std::string>& parts,
                          const json& config) {
    expect_error(code, parts, [&] { read("llama", config); });
  };
  const auto rope = [](json keys) { return json{{"rope_scaling", std::move(keys)}}; };
  const ErrorCode unsupported = ErrorCode::kUnsupported, malformed = ErrorCode::kMalformed;
  refused(unsupported, {"RoPE scaling 'longrope'", "default, linear, dynamic, llama3, yarn"},
          rope({{"rope_type", "longrope"}, {"short_factor", {1.0}}}));
  refused(unsupported, {"'full_attention' layers alone"},
          {{"rope_parameters", {{"full_attention", {{"rope_theta", 1.0}}}}}});
  refused(unsupported, {"'gptq'", "quantization_config", "GGUF"},
          {{"quantization_config", {{"quant_method", "gptq"}}}});
  refused(unsupported, {"'an unnamed method'"}, {{"quantization_config", json::object()}});
  refused(malformed, {"scaling factor of RoPE is 0"}, rope({{"type", "linear"}, {"factor", 0}}));
  refused(malformed, {"scaling factor of RoPE is inf"},
          rope({{"type", "linear"}, {"factor", 1e300}}));
  refused(malformed, {"base of RoPE is 1", "YaRN"},
          {{"rope_theta", 1.0}, {"rope_scaling", {{"type", "yarn"}, {"factor", 2.0}}}});
  refused(malformed, {"original context length is 0"},
          rope({{"type", "yarn"}, {"factor", 2.0}, {"original_max_position_embeddings", 0}}));
  refused(malformed, {"beta_fast of RoPE is -1"},
          rope({{"type", "yarn"}, {"factor", 2.0}, {"beta_fast", -1}}));
  refused(
      malformed, {"high_freq_factor"},
      rope({{"type", "llama3"}, {"factor", 2.0}, {"low_freq_factor", 2}, {"high_freq_factor", 2}}));
  refused(malformed, {"'rope_scaling'", "JSON object"}, {{"rope_scaling", "yarn"}});
}

}  // namespace
}  // namespace braid
