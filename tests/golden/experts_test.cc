// Files of mixtures: experts in every form they come in, and what is wrong with them by name.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"
#include "unit/io/expect_error.h"

namespace braid::golden {
namespace {

using nlohmann::json;
using test::expect_error;

constexpr double kF32Tolerance = 1e-4;  // as in logits_test.cc

class Mixtures : public testing::Test {
 protected:
  RandomModel load(const std::string& name) {
    golden_ = load_golden(name);
    return load_random_model(name);
  }
  std::string write(const RandomModel& model) const {
    std::filesystem::remove_all(folder_.path());
    write_hf_folder(model, folder_.path());
    return folder_.path().string();
  }
  std::string write_gguf_file(const RandomModel& model) const {
    const auto path = folder_.path() / "model.gguf";
    std::filesystem::create_directories(folder_.path());
    write_gguf(model, "f32", path);
    return path.string();
  }
  void expect_golden(const std::string& path) const {
    const Model model(path);
    Runner runner(model, {.cache = {.pages = kPages,
                                    .page_size = kPageSize,
                                    .pages_per_sequence = kPages,
                                    .kv_dtype = DType::f32}});
    const Case& c = golden_.cases.back();
    EXPECT_LT(relative_distance(prompt_logits(runner, c.prompt, 512).back(), c.last),
              kF32Tolerance);
  }
  void refuses(ErrorCode code, const RandomModel& model, const std::vector<std::string>& words) {
    const std::string path = write(model);
    expect_error(code, words, [&] { const Model m(path); });
  }

  const Folder folder_{"mixtures"};
  Golden golden_;
};

size_t index_of(const RandomModel& model, const std::string& name) {
  const auto at = std::ranges::find(model.tensors, name, &TensorSpec::name);
  BRAID_CHECK(at != model.tensors.end(), "{}", name);
  return static_cast<size_t>(at - model.tensors.begin());
}

// The experts of each layer in two tensors, gate and up together.
RandomModel fused(RandomModel model) {
  const RandomModel apart = model;
  std::erase_if(model.tensors,
                [](const TensorSpec& s) { return s.name.find(".experts.") != std::string::npos; });
  std::map<std::string, std::vector<std::string>> sources;
  const int64_t E = apart.name == "qwen3_moe" ? 32 : 12;
  for (int64_t layer = 0;; ++layer) {
    const std::string stem = fmt::format("model.layers.{}.mlp.experts.", layer);
    const auto spec = [&](int64_t e, const char* part) {
      return fmt::format("{}{}.{}.weight", stem, e, part);
    };
    if (std::ranges::find(apart.tensors, spec(0, "up_proj"), &TensorSpec::name) ==
        apart.tensors.end()) {
      break;
    }
    const auto& up = apart.tensors[index_of(apart, spec(0, "up_proj"))].shape;
    model.tensors.push_back({stem + "gate_up_proj", {E, 2 * up[0], up[1]}, 0, 1});
    model.tensors.push_back({stem + "down_proj", {E, up[1], up[0]}, 0, 1});
    for (int64_t e = 0; e < E; ++e) {
      for (const char* part : {"gate_proj", "up_proj"}) {
        sources[stem + "gate_up_proj"].push_back(spec(e, part));
      }
      sources[stem + "down_proj"].push_back(spec(e, "down_proj"));
    }
  }
  model.edit = [apart, sources](const TensorSpec& spec, std::span<float> values) {
    const auto own = sources.find(spec.name);
    if (own == sources.end()) return;
    auto out = values.begin();
    for (const std::string& name : own->second) {
      const std::vector<float> part = apart.values(apart.tensors[index_of(apart, name)]);
      out = std::copy(part.begin(), part.end(), out);
    }
  };
  return model;
}

TEST_F(Mixtures, GateAndUpMayBeOneTensor) {
  for (const char* name : {"qwen3_moe", "qwen2_moe"}) {
    SCOPED_TRACE(name);
    const std::string path = write(fused(load(name)));
    if (load_random_model(name).files.size() == 1) expect_golden(path);
  }
}

// As the first GGUF files of Mixtral had them.
RandomModel tensor_for_each_expert(RandomModel model) {
  json tensors = json::array();
  for (const json& entry : model.gguf["tensors"]) {
    if (!entry.contains("sources")) {
      tensors.push_back(entry);
      continue;
    }
    const std::string name = entry["name"];
    const std::string stem = name.substr(0, name.find("_exps"));
    for (size_t e = 0; e < entry["sources"].size(); ++e) {
      tensors.push_back(
          {{"name", fmt::format("{}.{}.weight", stem, e)}, {"source", entry["sources"][e]}});
    }
  }
  model.gguf["tensors"] = tensors;
  return model;
}

TEST_F(Mixtures, GgufMayHaveATensorForEachExpert) {
  expect_golden(write_gguf_file(tensor_for_each_expert(load("mixtral"))));
}

TEST_F(Mixtures, AnExpertOfAnotherTypeIsNamed) {
  RandomModel model = tensor_for_each_expert(load("mixtral"));
  const std::string name = "blk.1.ffn_down.3.weight";
  for (json& entry : model.gguf["tensors"]) {
    if (entry["name"] == name) entry["format"] = "f16";
  }
  const std::string path = write_gguf_file(model);
  expect_error(ErrorCode::kMalformed, {name, "is f16", "expert 0 is f32"},
               [&] { const Model m(path); });
}

TEST_F(Mixtures, ArraysByLayerHaveAnEntryForEachLayer) {
  const auto refuses_array = [&](ErrorCode code, const std::vector<int>& used,
                                 const std::vector<std::string>& words) {
    RandomModel model = load("deepseek_v3");
    for (json& entry : model.gguf["keys"]) {
      if (entry[0] == "deepseek2.expert_used_count") entry[1] = "i32s", entry[2] = used;
    }
    const std::string path = write_gguf_file(model);
    expect_error(code, words, [&] { const Model m(path); });
  };
  refuses_array(ErrorCode::kMalformed, {4, 4}, {"expert_used_count", "2 entries for 3 layers"});
  refuses_array(ErrorCode::kUnsupported, {4, 4, 3}, {"expert_used_count", "layers that differ"});
  refuses_array(ErrorCode::kMalformed, {17, 17, 17}, {"of a token is 17", "1 to 16"});
}

// Hidden states of one sequence that are no numbers: its experts are chosen all the same, every
// step ends, and the other sequences of the batch have the logits that they have alone.
TEST_F(Mixtures, ASequenceWithoutNumbersHarmsNoOther) {
  constexpr int32_t kBad = 7;
  for (const char* name : {"qwen3_moe", "deepseek_v3"}) {
    RandomModel random = load(name);
    random.edit = [](const TensorSpec& spec, std::span<float> values) {
      if (spec.name != "model.embed_tokens.weight") return;
      const auto C = static_cast<size_t>(spec.shape[1]);
      std::ranges::fill(values.subspan(kBad * C, C), NAN);
    };
    const Model model(write(random));
    ASSERT_TRUE(model.config().experts);
    for (const auto& [ranks, ep, dp, schedule] : {std::tuple{1, 1, 1, "sequential"},
                                                  {2, 2, 1, "sequential"},
                                                  {2, 2, 1, "dbo"},
                                                  {2, 1, 2, "sequential"},
                                                  {3, 3, 3, "sbo"}}) {
      SCOPED_TRACE(fmt::format("{} on {} ranks, ep {}, dp {}, {}", name, ranks, ep, dp, schedule));
      Runner runner(model, {.tp = ranks,
                            .ep = ep,
                            .dp = dp,
                            .cache = {.pages = 6,
                                      .page_size = kPageSize,
                                      .pages_per_sequence = 1,
                                      .kv_dtype = DType::f32},
                            .schedule = schedule});
      // Three sequences, of which one has a token that is no number; then each alone.
      const std::vector<std::vector<int32_t>> prompts = {
          {1, 2, 3, 4, 5}, {9, kBad, 10, 11}, {20, 21, 22}};
      const auto logits = [&](std::span<const std::vector<int32_t>> some, int32_t first_page) {
        Batch batch(kPageSize);
        for (size_t s = 0; s < some.size(); ++s) {
          const std::vector<int32_t> pages = {first_page + static_cast<int32_t>(s)};
          batch.add(some[s], 0, pages, 1);
        }
        Rows rows;
        append_rows(runner.run(batch), rows);
        return rows;
      };
      const Rows together = logits(prompts, 0);
      EXPECT_FALSE(std::isfinite(together[1][0]));
      for (const size_t s : {size_t{0}, size_t{2}}) {
        const Rows alone = logits(std::span(prompts).subspan(s, 1), 3);
        EXPECT_LT(relative_distance(together[s], alone[0]), kF32Tolerance) << "sequence " << s;
      }
    }
  }
}

// Ranks without tokens take part in every step, and a step repeated has the same bits.
TEST_F(Mixtures, RanksWithoutTokensTakeAThousandSteps) {
  const Model model(write(load("mixtral")));
  Runner runner(
      model,
      {.tp = 3,
       .ep = 3,
       .dp = 3,
       .cache = {
           .pages = 1, .page_size = kPageSize, .pages_per_sequence = 1, .kv_dtype = DType::f32}});
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5}, page = {0};
  Batch batch(kPageSize);
  batch.add(prompt, 0, page, 1);
  runner.step(batch);
  batch.clear();
  batch.add(std::span(prompt).first(1), std::ssize(prompt), page, 1);
  Rows rows;
  for (int step = 0; step < 1000; ++step) {
    const TensorView logits = runner.run(batch);
    if (step == 0) append_rows(logits, rows);
    ASSERT_EQ(std::memcmp(logits.data, rows[0].data(), rows[0].size() * sizeof(float)), 0) << step;
  }
}

TEST_F(Mixtures, AMissingExpertIsNamed) {
  RandomModel model = load("qwen3_moe");
  const std::string name = "model.layers.2.mlp.experts.17.up_proj.weight";
  model.tensors.erase(model.tensors.begin() + static_cast<int64_t>(index_of(model, name)));
  refuses(ErrorCode::kNotFound, model, {name, "one of 32 experts"});
}

TEST_F(Mixtures, AnExpertOfAnotherShapeIsNamed) {
  RandomModel model = load("qwen3_moe");
  const std::string name = "model.layers.1.mlp.experts.3.down_proj.weight";
  model.tensors[index_of(model, name)].shape = {64, 25};
  refuses(ErrorCode::kMalformed, model, {name, "[64, 25]", "expert 0 is f32 [64, 24]"});
}

TEST_F(Mixtures, ExpertsInTwoFormsAreRefused) {
  RandomModel model = load("qwen3_moe");
  model.tensors.push_back({"model.layers.0.mlp.experts.gate_up_proj", {32, 48, 64}, 0, 1});
  refuses(ErrorCode::kMalformed, model, {"experts.gate_up_proj", "both there"});
}

TEST_F(Mixtures, ExpertsOfAnotherNumberAreRefused) {
  RandomModel model = fused(load("qwen3_moe"));
  model.tensors[index_of(model, "model.layers.1.mlp.experts.down_proj")].shape = {31, 64, 24};
  model.edit = nullptr;
  refuses(ErrorCode::kMalformed, model,
          {"layers.1.mlp.experts.down_proj", "[31, 64, 24]", "wanted are 32 experts"});
  // Transposed experts are told by their shape.
  model = fused(load("qwen3_moe"));
  model.edit = nullptr;
  model.tensors[index_of(model, "model.layers.0.mlp.experts.down_proj")].shape = {32, 24, 64};
  refuses(ErrorCode::kMalformed, model, {"[32, 24, 64]", "the model wants [32, 64, 24]"});
}

TEST_F(Mixtures, ASharedExpertIsThereAsAnnounced) {
  RandomModel model = load("qwen2_moe_layers");
  const std::string down = "model.layers.3.mlp.shared_expert.down_proj.weight";
  model.tensors.erase(model.tensors.begin() + static_cast<int64_t>(index_of(model, down)));
  refuses(ErrorCode::kNotFound, model, {down});
  model = load("qwen3_moe");
  model.tensors.push_back({"model.layers.0.mlp.shared_expert.down_proj.weight", {64, 8}, 0, 1});
  refuses(ErrorCode::kUnsupported, model, {"no use for tensor", "shared_expert.down_proj"});
  model = load("qwen2_moe_layers");
  model.tensors[index_of(model, "model.layers.3.mlp.shared_expert_gate.weight")].shape = {2, 64};
  refuses(ErrorCode::kMalformed, model, {"shared_expert_gate", "[2, 64]", "[1, 64]"});
}

TEST_F(Mixtures, ABiasOfAnotherLengthIsRefused) {
  RandomModel model = load("deepseek_v3");
  const std::string bias = "model.layers.2.mlp.gate.e_score_correction_bias";
  model.tensors[index_of(model, bias)].shape = {15};
  refuses(ErrorCode::kMalformed, model, {bias, "[15]", "[16]"});
}

TEST_F(Mixtures, ABiasThatIsNoNumberIsRefused) {
  const std::string bias = "model.layers.2.mlp.gate.e_score_correction_bias";
  for (const float value : {NAN, INFINITY}) {
    RandomModel model = load("deepseek_v3");
    model.edit = [bias, value](const TensorSpec& spec, std::span<float> values) {
      if (spec.name == bias) values[11] = value;
    };
    refuses(ErrorCode::kMalformed, model,
            {bias, fmt::format("has {} for expert 11", value), "wanted is a number"});
  }
}

// Layers behind the last one predict further tokens: one line says that they are not used.
TEST_F(Mixtures, PredictionLayersAreSkipped) {
  RandomModel model = load("deepseek_v3");
  model.tensors.push_back({"model.layers.3.eh_proj.weight", {64, 128}, 0, 1});
  const std::string path = write(model);
  const Model opened(path);
  ASSERT_EQ(opened.config().remarks.size(), 1u);
  EXPECT_NE(opened.config().remarks[0].find("1 tensors of layers behind the last (2)"),
            std::string::npos);
  expect_golden(path);
  model = load("qwen3_moe");
  model.tensors.push_back({"model.layers.3.eh_proj.weight", {64, 128}, 0, 1});
  refuses(ErrorCode::kUnsupported, model, {"no use for tensor 'model.layers.3.eh_proj.weight'"});
}

TEST_F(Mixtures, LatentsInTwoFormsAreRefused) {
  RandomModel model = load("deepseek_v3");
  model.gguf["tensors"].push_back({{"name", "blk.0.attn_kv_b.weight"},
                                   {"source", "model.layers.0.self_attn.kv_b_proj.weight"}});
  const std::string path = write_gguf_file(model);
  expect_error(ErrorCode::kMalformed, {"blk.0.attn_kv_b.weight", "blk.0.attn_k_b.weight"},
               [&] { const Model m(path); });
}

// Keys of a GGUF file that make no router, each by its name, value and limit.
TEST_F(Mixtures, KeysOfGgufThatMakeNoRouterAreRefused) {
  const auto refuses_key = [&](ErrorCode code, const std::string& key, const json& value,
                               const std::vector<std::string>& words) {
    SCOPED_TRACE(key);
    RandomModel model = load("deepseek_v3");
    for (json& entry : model.gguf["keys"]) {
      if (entry[0] == "deepseek2." + key) entry[2] = value;
    }
    const std::string path = write_gguf_file(model);
    expect_error(code, words, [&] { const Model m(path); });
  };
  refuses_key(ErrorCode::kUnsupported, "expert_gating_func", 7,
              {"deepseek2.expert_gating_func is 7", "1 (softmax) and 2 (sigmoid)"});
  refuses_key(ErrorCode::kMalformed, "expert_used_count", 17, {"of a token is 17", "1 to 16"});
  refuses_key(ErrorCode::kMalformed, "expert_group_count", 3, {"16 experts", "3"});
  refuses_key(ErrorCode::kMalformed, "expert_group_used_count", 5, {"keeps is 5", "1 to 4"});
  refuses_key(ErrorCode::kMalformed, "attention.kv_lora_rank", 0, {"kv_lora_rank", "is 0"});
  refuses_key(ErrorCode::kMalformed, "rope.dimension_count", 7, {"rotary dimension is 7", "even"});
  refuses_key(ErrorCode::kMalformed, "rope.dimension_count", 32, {"other columns of a key is 0"});
}

TEST_F(Mixtures, YarnOfLatentsWithoutItsOriginalLengthIsRefused) {
  for (const bool zero : {true, false}) {
    RandomModel model = load("deepseek_v2_lite");
    const std::string key = "deepseek2.rope.scaling.original_context_length";
    auto& keys = model.gguf["keys"];
    const auto entry = std::ranges::find_if(keys, [&](const json& k) { return k[0] == key; });
    ASSERT_NE(entry, keys.end());
    if (zero) {
      (*entry)[2] = 0;
    } else {
      keys.erase(entry);
    }
    const std::string path = write_gguf_file(model);
    expect_error(ErrorCode::kMalformed, {key, "missing or 0"}, [&] { const Model m(path); });
  }
}

TEST_F(Mixtures, ActiveParametersAreThoseOfOneToken) {
  const RandomModel random = load("qwen3_moe");
  const Model model(write(random));
  int64_t experts = 0;
  for (const TensorSpec& spec : random.tensors) {
    if (spec.name.find(".experts.") != std::string::npos) experts += spec.elems();
  }
  EXPECT_EQ(model.parameters() - model.active_parameters(), experts - experts / 32 * 8);
}

// Experts that do not divide over ranks, each by both numbers.
TEST_F(Mixtures, RanksThatDoNotDivideExpertsAreRefused) {
  const auto refuses_ranks = [&](const std::string& name, int tp, int ep,
                                 const std::vector<std::string>& words) {
    const Model model(write(load(name)));
    expect_error(ErrorCode::kInvalidArgument, words,
                 [&] { const Runner runner(model, {.tp = tp, .ep = ep}); });
  };
  refuses_ranks("qwen3_moe", 2, 3, {"over 3 ranks", "there are 2 ranks"});
  refuses_ranks("qwen3_moe", 2, 0, {"over 0 ranks", "at least 1"});
  refuses_ranks("llama2_mha", 2, 2, {"over 2 ranks", "no experts"});
  refuses_ranks("qwen3_moe", 64, 64, {"over 64 ranks", "has 32 experts"});
}

}  // namespace
}  // namespace braid::golden
