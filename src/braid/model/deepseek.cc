// Models with latent attention: DeepSeek-V2 and V2-Lite, the form of DeepSeek-V3 (R1, Kimi-K2,
// Moonlight), GLM-4.7-Flash. They differ by their routers; in GGUF all share an architecture.
#include "braid/model/decoder.h"

namespace braid {
namespace {

std::string hf_name(std::string_view canonical) {
  std::string name = decoder::hf_name(canonical);
  constexpr std::string_view kOne = ".shared_expert.", kBias = ".mlp.choice.bias";
  if (canonical.ends_with(kBias)) {
    return name.substr(0, name.size() - kBias.size()) + ".mlp.gate.e_score_correction_bias";
  }
  if (const size_t at = name.find(kOne); at != std::string::npos) {
    name.replace(at, kOne.size(), ".shared_experts.");
  }
  return name;
}

// Groups by their best expert, or none; weights never normalised, as in transformers.
ModelConfig v2_config(const JsonObject& config) {
  ModelConfig c = decoder::hf_config(config, "deepseek_v2");
  c.experts->route.weight = ops::RouteWeight::score;
  return c;
}

// Sigmoids with a bias for the choice; groups by the sum of their two best.
void route_as_v3(ModelConfig& c) {
  c.experts->choice_bias = true;
  c.experts->route.score = ops::RouteScore::sigmoid;
  c.experts->route.group_score = ops::GroupScore::two_best;
}

ModelConfig v3_config(const JsonObject& config) {
  ModelConfig c = decoder::hf_config(config, "deepseek_v3");
  route_as_v3(c);
  return c;
}

ModelConfig glm_config(const JsonObject& config) {
  ModelConfig c = decoder::hf_config(config, "glm4_moe_lite");
  route_as_v3(c);
  if (!config.contains("mlp_layer_types")) c.experts->sparse[0] = false;
  return c;
}

ModelConfig gguf_config(const GgufFile& file) {
  return decoder::gguf_config(file, {.pairing = ops::RopePairing::interleaved, .latent = true});
}

}  // namespace

const ModelFamily kDeepseekV2 = {
    .name = "deepseek_v2",
    .gguf_architectures = {"deepseek2"},
    .hf_architectures = {"DeepseekV2ForCausalLM"},
    .gguf_config = gguf_config,
    .hf_config = v2_config,
    .gguf_name = decoder::gguf_name,
    .hf_name = hf_name,
    .forward = decoder::forward,
    .predicts = true,
};

const ModelFamily kDeepseekV3 = {
    .name = "deepseek_v3",
    .gguf_architectures = {},
    .hf_architectures = {"DeepseekV3ForCausalLM"},
    .gguf_config = gguf_config,
    .hf_config = v3_config,
    .gguf_name = decoder::gguf_name,
    .hf_name = hf_name,
    .forward = decoder::forward,
    .predicts = true,
};

const ModelFamily kGlm4MoeLite = {
    .name = "glm4_moe_lite",
    .gguf_architectures = {},
    .hf_architectures = {"Glm4MoeLiteForCausalLM"},
    .gguf_config = gguf_config,
    .hf_config = glm_config,
    .gguf_name = decoder::gguf_name,
    .hf_name = hf_name,
    .forward = decoder::forward,
    .predicts = true,
};

}  // namespace braid
