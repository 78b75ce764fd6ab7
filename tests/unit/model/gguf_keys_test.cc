// Walks the table of keys in GGUF files: each key has the effect that its cell says, in every
// architecture.
#include <gtest/gtest.h>

#include <cmath>

#include "braid/model/config_keys.h"
#include "braid/model/family.h"
#include "unit/io/gguf_writer.h"
#include "unit/io/temp_folder.h"
#include "unit/model/walk.h"

namespace braid {
namespace {

using test::json;
using test::Outcome;
using test::Trial;
using test::with;
using testing::HasSubstr;

class GgufKeys : public testing::TestWithParam<std::string_view> {
 protected:
  // Integers as u32, other numbers as f32.
  static void add(test::GgufWriter& w, const std::string& key, const json& value) {
    using test::encoded;
    if (value.is_string()) {
      w.text(key, value.get<std::string>());
    } else if (value.is_boolean()) {
      w.entry(key, 7, encoded<uint8_t>(value.get<bool>()));
    } else if (value.is_number_integer()) {
      w.u32(key, value.get<uint32_t>());
    } else if (value.is_number()) {
      w.entry(key, 6, encoded(value.get<float>()));
    } else {
      std::vector<std::string> elements;
      for (const json& x : value) elements.push_back(encoded(x.get<int32_t>()));
      w.array(key, 5, elements);
    }
  }

  Outcome read(const json& keys, const std::vector<std::string>& more_tensors = {}) const {
    test::GgufWriter w;
    const std::string architecture = GetParam() == "mixtral" ? "llama" : std::string(GetParam());
    w.text("general.architecture", architecture);
    for (const auto& [key, value] : keys.items())
      add(w, fmt::format("{}.{}", architecture, key), value);
    w.tensor("token_embd.weight", {272, 64}, 0, std::string(272 * 64 * 4, '\0'));
    for (const std::string& name : more_tensors) w.tensor(name, {8}, 0, std::string(32, '\0'));
    const GgufFile file(folder_.write("m.gguf", w.build()));
    return test::outcome([&] { return family().gguf_config(file); });
  }

  static const ModelFamily& family() {
    for (const ModelFamily* family : model_families()) {
      if (family->name == GetParam()) return *family;
      if (family->gguf_architectures == std::vector{GetParam()}) return *family;
    }
    throw std::logic_error("no such family");
  }

  static json base() {
    json keys = {{"block_count", 2},          {"context_length", 512},
                 {"embedding_length", 64},    {"feed_forward_length", 96},
                 {"attention.head_count", 4}, {"attention.layer_norm_rms_epsilon", 1e-5}};
    if (!has_experts()) return keys;
    keys = with(keys, {{"expert_count", 6}, {"expert_used_count", 2}});
    if (!has_latents()) return keys;
    return with(keys, {{"expert_feed_forward_length", 48},
                       {"attention.kv_lora_rank", 32},
                       {"attention.key_length", 24},
                       {"attention.value_length", 16},
                       {"rope.dimension_count", 8}});
  }

  static bool turns_whole_heads() { return GetParam() == "llama" || GetParam() == "mixtral"; }
  static bool has_latents() { return GetParam() == "deepseek2"; }
  static bool has_experts() {
    return GetParam() == "mixtral" || GetParam().ends_with("moe") || has_latents();
  }

  const test::TempFolder folder_;
};

TEST_P(GgufKeys, AreReadAsTheTableSays) {
  std::map<std::string, Trial> trials = {
      {"block_count", {3}},
      {"context_length", {256}},
      {"embedding_length", {128}},
      {"feed_forward_length", {112}},
      {"attention.head_count", {8}},
      {"attention.head_count_kv", {2}},
      {"attention.key_length", {32}},
      {"attention.layer_norm_rms_epsilon", {1e-3}},
      {"rope.freq_base", {500.0}},
      {"rope.scaling.type", {"yarn", {{"rope.scaling.original_context_length", 64}}}},
      {"rope.scaling.factor", {3.0}},
      {"rope.scale_linear", {3.0}},
      {"rope.scaling.original_context_length", {64, {{"rope.scaling.type", "yarn"}}}},
      {"rope.scaling.attn_factor", {1.5}},
      {"rope.scaling.yarn_log_multiplier",
       {0.07,
        {{"rope.scaling.type", "yarn"},
         {"rope.scaling.factor", 4.0},
         {"rope.scaling.original_context_length", 64}}}},
      {"attention.causal", {false}},
      {"expert_count", {8}},
      {"expert_used_count", {3}},
      {"expert_weights_scale", {2.0}},
      {"expert_weights_norm", {true}},
      {"expert_gating_func", {2}},
      {"expert_group_count", {2}},
      {"expert_group_used_count", {2, {{"expert_group_count", 3}}}},
      {"leading_dense_block_count", {1}},
      {"nextn_predict_layers", {1}},
      {"attention.key_length_mla", {40}},
      {"attention.value_length_mla", {40}},
      {"rope.dimension_count", {has_latents() ? 16 : 8}},
      {"rope.scaling.finetuned", {true}},
      {"tensor_data_layout", {"Meta AI original pth"}},
      {"rope.dimension_sections", {{4, 2, 2}}},
  };
  for (const ConfigKey& key : gguf_keys().keys) trials.try_emplace(std::string(key.name), Trial{8});
  // These are read to be compared: another value is refused, by name.
  for (const char* key : {"attention.value_length", "rope.dimension_count"}) {
    if (has_latents() || (!turns_whole_heads() && key == std::string("rope.dimension_count")))
      continue;
    EXPECT_THAT(test::text_of(read(with(base(), {{key, 8}}))), HasSubstr(key));
    EXPECT_EQ(read(with(base(), {{key, 16}})), read(base()));
  }
  std::vector<ConfigKey> walked;
  for (const ConfigKey& key : gguf_keys().keys) {
    const bool compared = (key.name == "attention.value_length" && !has_latents()) ||
                          (key.name == "rope.dimension_count" && turns_whole_heads());
    if (!compared) walked.push_back(key);
  }
  const KeyTable table = {gguf_keys().title, gguf_keys().columns, walked};
  test::walk(table, GetParam(), base(), trials, [&](const json& keys) { return read(keys); });
}

TEST_P(GgufKeys, ArraysOfEqualValuesAreNumbers) {
  const Outcome plain = read(with(base(), {{"attention.head_count_kv", 2}}));
  ASSERT_TRUE(std::holds_alternative<ModelConfig>(plain));
  EXPECT_EQ(read(with(base(), {{"attention.head_count_kv", {2, 2}},
                               {"attention.head_count", {4, 4}},
                               {"feed_forward_length", {96, 96}}})),
            plain);
  for (const char* key :
       {"attention.head_count_kv", "attention.head_count", "feed_forward_length"}) {
    EXPECT_THAT(
        test::text_of(read(with(base(), {{key, {4, 2}}}))),
        testing::AllOf(HasSubstr(key), HasSubstr("[4, 2]"), HasSubstr("layers that differ")));
    EXPECT_THAT(test::text_of(read(with(base(), {{key, {4, 4, 4}}}))),
                HasSubstr("3 entries for 2"));
    EXPECT_THAT(test::text_of(read(with(base(), {{key, json::array()}}))), HasSubstr("0 entries"));
  }
  EXPECT_THAT(test::text_of(read(with(base(), {{"context_length", {512, 512}}}))),
              HasSubstr("context_length"));
}

TEST_P(GgufKeys, RopeScalingIsWhatLlamaCppMakesOfIt) {
  const auto rope = [&](const json& keys) {
    return std::get<ModelConfig>(read(with(base(), keys))).rope;
  };
  const ops::RopeAttrs plain = rope({});
  EXPECT_EQ(plain.scaling, ops::RopeScaling::none);
  EXPECT_EQ(rope({{"rope.scaling.type", "linear"}}), plain);
  EXPECT_EQ(rope({{"rope.scaling.factor", 0.0}}), plain);
  EXPECT_EQ(rope({{"rope.scaling.type", "none"}, {"rope.scaling.factor", 4.0}}), plain);
  const ops::RopeAttrs linear = rope({{"rope.scaling.factor", 4.0}});
  EXPECT_EQ(linear.scaling, ops::RopeScaling::linear);
  EXPECT_EQ(linear.factor, 4);
  EXPECT_EQ(rope({{"rope.scale_linear", 4.0}}), linear);
  EXPECT_EQ(rope({{"rope.scaling.factor", 4.0}, {"rope.scale_linear", 2.0}}), linear);
  EXPECT_EQ(rope({{"rope.scaling.attn_factor", 1.5}}).attention_factor, 1.5f);
  json yarn = {{"rope.scaling.type", "yarn"}, {"rope.scaling.factor", 4.0}};
  if (has_latents()) {
    EXPECT_THAT(test::text_of(read(with(base(), yarn))),
                HasSubstr("deepseek2.rope.scaling.original_context_length is missing or 0"));
    yarn["rope.scaling.original_context_length"] = 512;
  }
  EXPECT_EQ(rope(yarn).original_context, 512);
  EXPECT_FLOAT_EQ(rope(yarn).attention_factor, 1 + 0.1f * std::log(4.0f));
  EXPECT_FLOAT_EQ(rope(with(yarn, {{"rope.scaling.factor", 0.5}})).attention_factor, 1);
  EXPECT_FLOAT_EQ(rope(with(yarn, {{"rope.scaling.attn_factor", 2.0}})).attention_factor,
                  2 + 0.2f * std::log(4.0f));
  EXPECT_THAT(test::text_of(read(with(base(), {{"rope.scaling.type", "longrope"}}))),
              HasSubstr("'longrope' is not supported (known: none, linear, yarn)"));
}

TEST_P(GgufKeys, TensorsOfOtherFamiliesChangeNothing) {
  const auto config =
      std::get<ModelConfig>(read(base(), {"blk.0.attn_q_norm.weight", "rope_freqs.weight"}));
  EXPECT_EQ(config.qk_norm, GetParam().starts_with("qwen3"));
  EXPECT_EQ(config.rope_factors, turns_whole_heads());
}

INSTANTIATE_TEST_SUITE_P(Architectures, GgufKeys,
                         testing::Values("llama", "qwen2", "qwen3", "mixtral", "qwen2moe",
                                         "qwen3moe", "deepseek2", "chatglm"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace braid
