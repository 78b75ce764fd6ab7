#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "braid/backend/cuda/device.h"
#include "braid/model/model_shape.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"

// Random models of the shapes that relays and fused blocks take, with their exact logits.
namespace braid::golden {

struct RelayCase {
  std::string name;
  std::string family = "llama";
  int64_t C, F, Hq, Hkv, D;
  int64_t layers = 2;
  int64_t window = 0;
  int64_t V = 600;
  int tokens = 70;
  DType weights = DType::bf16;
};

// Widths that are no multiple of what a warp or a thread takes at once, rows longer than a slot,
// one to eight query heads per KV head, norms of heads, biases, windows, heads in several steps.
inline const RelayCase kRelayCases[] = {
    {.name = "heads_of_128", .C = 512, .F = 1376, .Hq = 4, .Hkv = 4, .D = 128, .layers = 3},
    {.name = "heads_of_64", .C = 576, .F = 1536, .Hq = 9, .Hkv = 3, .D = 64},
    {.name = "normed_heads", .family = "qwen3", .C = 264, .F = 700, .Hq = 4, .Hkv = 2, .D = 128},
    {.name = "biases", .family = "qwen2", .C = 512, .F = 904, .Hq = 8, .Hkv = 2, .D = 64},
    {.name = "window",
     .family = "mistral",
     .C = 320,
     .F = 640,
     .Hq = 4,
     .Hkv = 1,
     .D = 128,
     .window = 37},
    // So few outputs that CTAs have several units of keys, and of two heads.
    {.name = "few_ctas", .C = 64, .F = 256, .Hq = 8, .Hkv = 8, .D = 64, .tokens = 430},
    {.name = "few_ctas_grouped", .C = 80, .F = 256, .Hq = 12, .Hkv = 4, .D = 128, .tokens = 300},
    {.name = "eight_to_a_head", .C = 256, .F = 512, .Hq = 8, .Hkv = 1, .D = 64, .tokens = 150},
    {.name = "eight_of_128", .C = 512, .F = 1024, .Hq = 16, .Hkv = 2, .D = 128, .tokens = 150},
    {.name = "six_to_a_head", .C = 320, .F = 616, .Hq = 12, .Hkv = 2, .D = 128, .tokens = 150},
    {.name = "long_rows", .C = 256, .F = 6008, .Hq = 2, .Hkv = 2, .D = 64},
    {.name = "wide_norm", .C = 4616, .F = 256, .Hq = 2, .Hkv = 1, .D = 128},
    {.name = "long_head", .C = 264, .F = 512, .Hq = 2, .Hkv = 2, .D = 128, .V = 33004},
};

inline void PrintTo(const RelayCase& c, std::ostream* out) {
  *out << c.name;
}

inline RandomModel model_of(const RelayCase& c, const std::filesystem::path& folder) {
  const std::map<std::string, std::string> architectures = {{"llama", "LlamaForCausalLM"},
                                                            {"mistral", "MistralForCausalLM"},
                                                            {"qwen2", "Qwen2ForCausalLM"},
                                                            {"qwen3", "Qwen3ForCausalLM"}};
  nlohmann::json config = {{"architectures", {architectures.at(c.family)}},
                           {"model_type", c.family},
                           {"hidden_act", "silu"},
                           {"hidden_size", c.C},
                           {"intermediate_size", c.F},
                           {"num_hidden_layers", c.layers},
                           {"num_attention_heads", c.Hq},
                           {"num_key_value_heads", c.Hkv},
                           {"head_dim", c.D},
                           {"vocab_size", c.V},
                           {"max_position_embeddings", 1024},
                           {"rms_norm_eps", 1e-5},
                           {"rope_theta", 10000.0},
                           {"tie_word_embeddings", true},
                           {"bos_token_id", 1},
                           {"eos_token_id", 2},
                           {"torch_dtype", "bfloat16"}};
  if (c.family == "mistral") config["sliding_window"] = c.window;
  std::ofstream(folder / "config.json") << config.dump();
  RandomModel model{.name = c.name, .folder = folder, .seed = 42, .dtype = DType::bf16};
  const auto matrix = [&](const std::string& name, int64_t n, int64_t k) {
    const double scale = std::ceil(2 / std::sqrt(static_cast<double>(k)) * 4096) / 4096;
    model.tensors.push_back({name + ".weight", {n, k}, 0, scale});
  };
  const auto vector = [&](const std::string& name, int64_t n, double base) {
    model.tensors.push_back({name, {n}, base, 0.25});
  };
  matrix("model.embed_tokens", c.V, c.C);
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i);
    const std::string attn = layer + ".self_attn";
    vector(layer + ".input_layernorm.weight", c.C, 1);
    matrix(attn + ".q_proj", c.Hq * c.D, c.C);
    matrix(attn + ".k_proj", c.Hkv * c.D, c.C);
    matrix(attn + ".v_proj", c.Hkv * c.D, c.C);
    matrix(attn + ".o_proj", c.C, c.Hq * c.D);
    if (c.family == "qwen2") {
      vector(attn + ".q_proj.bias", c.Hq * c.D, 0);
      vector(attn + ".k_proj.bias", c.Hkv * c.D, 0);
      vector(attn + ".v_proj.bias", c.Hkv * c.D, 0);
    }
    if (c.family == "qwen3") {
      vector(attn + ".q_norm.weight", c.D, 1);
      vector(attn + ".k_norm.weight", c.D, 1);
    }
    vector(layer + ".post_attention_layernorm.weight", c.C, 1);
    matrix(layer + ".mlp.gate_proj", c.F, c.C);
    matrix(layer + ".mlp.up_proj", c.F, c.C);
    matrix(layer + ".mlp.down_proj", c.C, c.F);
  }
  vector("model.norm.weight", c.C, 1);
  model.files["model.safetensors"] = {};
  return model;
}

inline Rows reference_rows(const Model& model, const std::vector<int32_t>& prompt,
                           DType activations) {
  const auto n = std::ssize(prompt);
  return reference_logits(model,
                          model.forward({.capacity = {n, 1, n},
                                         .pages = kPages,
                                         .page_size = kPageSize,
                                         .pages_per_sequence = kPages,
                                         .kv_dtype = activations,
                                         .activations = activations}),
                          prompt);
}

inline double largest_distance(const Rows& rows, const Rows& wanted) {
  double most = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    most = std::max(most, relative_distance(rows.at(i), wanted[i]));
  }
  return most;
}

class CudaRelay : public testing::TestWithParam<RelayCase> {
 protected:
  void SetUp() override {
    if (usable_gpus() == 0 || cuda::device_info(0).compute_capability != 90) {
      GTEST_SKIP() << "no Hopper GPU";
    }
    const RelayCase& c = GetParam();
    const RandomModel random = model_of(c, spec_.path());
    if (is_quantized(c.weights)) {
      model_.emplace(read_model_shape((spec_.path() / "config.json").string(), c.weights), 42);
    } else {
      write_hf_folder(random, folder_.path());
      model_.emplace(folder_.path().string());
    }
    for (int i = 0; i < c.tokens; ++i) prompt_.push_back((i * i * 7 + 3 * i) % 299);
    exact_ = reference_rows(*model_, prompt_, DType::f32);
    tolerance_ =
        2 * std::sqrt(2.) * largest_distance(reference_rows(*model_, prompt_, DType::bf16), exact_);
  }

  // Token by token; the same bits each time.
  void expect_exact(Runner& runner) {
    const Rows rows = prompt_logits(runner, prompt_, 1);
    EXPECT_LT(largest_distance(rows, exact_), tolerance_);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(prompt_logits(runner, prompt_, 1), rows);
  }

  const Folder spec_{GetParam().name + "_spec"}, folder_{GetParam().name + "_relay"};
  std::optional<Model> model_;
  std::vector<int32_t> prompt_;
  Rows exact_;
  double tolerance_ = 0;
};

}  // namespace braid::golden
