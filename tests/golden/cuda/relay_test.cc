// Models whose decode steps of one token join in a relay: against the scalar references, against
// the same launches apart, and against themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <regex>

#include "braid/backend/cuda/device.h"
#include "braid/kernels/cuda/decode_choice/decode_form.h"
#include "braid/model/model_shape.h"
#include "braid/ops/attention_block.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"

namespace braid::golden {
namespace {

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
const RelayCase kCases[] = {
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

// Blocks: of every format, rows that begin between multiples of 16 bytes, that fill a slot or go on
// in the next, few blocks a row and many.
const RelayCase kBlockCases[] = {
    {.name = "q4_0", .C = 576, .F = 1536, .Hq = 9, .Hkv = 3, .D = 64, .weights = DType::q4_0},
    {.name = "q4_0_long", .C = 256, .F = 16384, .Hq = 2, .Hkv = 2, .D = 64, .weights = DType::q4_0},
    {.name = "q4_0_few_ctas",
     .C = 64,
     .F = 256,
     .Hq = 8,
     .Hkv = 8,
     .D = 64,
     .weights = DType::q4_0},
    {.name = "q4_1", .C = 512, .F = 1376, .Hq = 4, .Hkv = 4, .D = 128, .weights = DType::q4_1},
    {.name = "q4_1_heads_of_64",
     .C = 576,
     .F = 1536,
     .Hq = 9,
     .Hkv = 3,
     .D = 64,
     .weights = DType::q4_1},
    {.name = "q5_0",
     .family = "qwen3",
     .C = 320,
     .F = 672,
     .Hq = 4,
     .Hkv = 2,
     .D = 128,
     .weights = DType::q5_0},
    {.name = "q5_1",
     .family = "qwen2",
     .C = 352,
     .F = 928,
     .Hq = 8,
     .Hkv = 2,
     .D = 64,
     .weights = DType::q5_1},
    {.name = "q8_0", .C = 576, .F = 1536, .Hq = 9, .Hkv = 3, .D = 64, .weights = DType::q8_0},
    {.name = "q8_0_long_head",
     .C = 288,
     .F = 512,
     .Hq = 2,
     .Hkv = 2,
     .D = 128,
     .V = 33004,
     .weights = DType::q8_0},
    {.name = "q4_k", .C = 768, .F = 2304, .Hq = 6, .Hkv = 2, .D = 128, .weights = DType::q4_k},
    {.name = "q4_k_wide_norm",
     .C = 4608,
     .F = 256,
     .Hq = 2,
     .Hkv = 1,
     .D = 128,
     .weights = DType::q4_k},
    {.name = "q4_k_long", .C = 256, .F = 14592, .Hq = 4, .Hkv = 4, .D = 64, .weights = DType::q4_k},
    {.name = "q5_k", .C = 768, .F = 1280, .Hq = 12, .Hkv = 4, .D = 64, .weights = DType::q5_k},
    {.name = "q6_k", .C = 768, .F = 2304, .Hq = 6, .Hkv = 2, .D = 128, .weights = DType::q6_k},
    {.name = "q6_k_long", .C = 256, .F = 8192, .Hq = 4, .Hkv = 4, .D = 64, .weights = DType::q6_k},
};

void PrintTo(const RelayCase& c, std::ostream* out) {
  *out << c.name;
}

RandomModel model_of(const RelayCase& c, const std::filesystem::path& folder) {
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

Rows reference_rows(const Model& model, const std::vector<int32_t>& prompt, DType activations) {
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

double largest_distance(const Rows& rows, const Rows& wanted) {
  double most = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    most = std::max(most, relative_distance(rows.at(i), wanted[i]));
  }
  return most;
}

// The most launches in the place of which a plan has one.
int joined(const Runner& runner) {
  int most = 0;
  for (const std::string& line : runner.explain()) {
    std::smatch match;
    if (std::regex_search(line, match, std::regex("([0-9]+) launches joined in one"))) {
      most = std::max(most, std::stoi(match[1]));
    }
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

TEST_P(CudaRelay, EqualsLaunchesApart) {
  Runner runner(*model_, cuda_runner());
  expect_exact(runner);
  if (GetParam().F % 8 == 0) {
    EXPECT_EQ(joined(runner), 6 * GetParam().layers + 1);
  }

  // A run whose launches are timed keeps them apart.
  RunnerConfig timed = cuda_runner();
  timed.on_step = [](const Runner&) {};
  Runner apart(*model_, timed);
  EXPECT_LT(largest_distance(prompt_logits(apart, prompt_, 1), exact_), tolerance_);
}

// Every form of `--decode`: the same results, or the reason why there are none.
TEST_P(CudaRelay, EveryFormOfDecode) {
  const RelayCase& c = GetParam();
  for (const char* form : {"apart", "relay", "fused", "fused:cluster=1,scope=projected",
                           "fused:cluster=3,scope=projected", "fused:exchange=memory",
                           "fused:cluster=2,scope=projected,exchange=memory"}) {
    SCOPED_TRACE(form);
    RunnerConfig config = cuda_runner();
    config.decode = form;
    const cuda::DecodeKind kind = cuda::parse_decode(form).kind;
    Runner runner(*model_, config);
    const bool fused = kind == cuda::DecodeKind::fused;
    if (fused && (is_quantized(c.weights) || c.Hq / c.Hkv > cuda::kFusedMaxGroup)) {
      EXPECT_THROW(prompt_logits(runner, prompt_, 1), Error);
      continue;
    }
    expect_exact(runner);
    const bool relay = kind == cuda::DecodeKind::relay;
    if (!relay || c.F % 8 == 0) {
      EXPECT_EQ(joined(runner), relay ? 6 * c.layers + 1 : 0);
    }
    EXPECT_THAT(runner.explain(), testing::Contains(testing::HasSubstr("(chosen)")));
    const Program& program = runner.last_step(0).executor->program();
    EXPECT_EQ(std::ranges::count(program.ops, &ops::kAttentionBlock, &Op::def),
              fused ? c.layers : 0);
  }
}

// Ranks whose layers are cut evenly share a relay, others have parts of theirs in relays.
TEST_P(CudaRelay, RanksShareOne) {
  if (const char* why = cannot_run(2)) GTEST_SKIP() << why;
  const RelayCase& c = GetParam();
  const int64_t whole = std::max(8, info(c.weights).block_elems);
  const int64_t most = std::min({c.Hq, c.Hq * c.D / whole, int64_t{4}});
  for (int ranks = 2; ranks <= most && !cannot_run(ranks); ++ranks) {
    SCOPED_TRACE(fmt::format("{} ranks", ranks));
    Runner runner(*model_, cuda_runner(ranks));
    expect_exact(runner);
    if (c.Hq % ranks == 0 && c.Hkv % ranks == 0 && c.F % (whole * ranks) == 0 &&
        c.Hq * c.D % (whole * ranks) == 0) {
      EXPECT_EQ(joined(runner), 8 * c.layers + 1);
    }
  }
}

// A GGUF whose weights have many formats, also those of one linear, in heads of 64.
TEST(CudaRelayOfFormats, EqualsReference) {
  if (usable_gpus() == 0 || cuda::device_info(0).compute_capability != 90) {
    GTEST_SKIP() << "no Hopper GPU";
  }
  RandomModel random = load_random_model("llama_k256");
  const std::map<std::string, int> heads = {{"llama.attention.head_count", 4},
                                            {"llama.attention.head_count_kv", 1},
                                            {"llama.rope.dimension_count", 64}};
  for (nlohmann::json& key : random.gguf["keys"]) {
    if (const auto it = heads.find(key[0]); it != heads.end()) key[2] = it->second;
  }
  for (nlohmann::json& tensor : random.gguf["tensors"]) {
    if (tensor["name"] == "blk.0.attn_q.weight") tensor["permute_heads"] = 4;
    if (tensor["name"] == "blk.0.attn_k.weight") tensor["permute_heads"] = 1;
  }
  const Folder folder("relay_of_formats");
  for (const auto& [gate, head] : {std::pair{"q4_1", "bf16"}, {"q5_0", "q6_k"}, {"q4_0", "q8_0"}}) {
    SCOPED_TRACE(gate);
    random.gguf["forms"]["mixed"]["formats"].update(
        {{"ffn_gate", gate}, {"ffn_up", gate}, {"output", head}});
    const std::filesystem::path path = folder.path() / (std::string(gate) + ".gguf");
    write_gguf(random, "mixed", path);
    const Model model(path.string());
    std::vector<int32_t> prompt;
    for (int i = 0; i < 70; ++i) prompt.push_back((i * i * 7 + 3 * i) % 251);
    const Rows exact = reference_rows(model, prompt, DType::f32);
    const double tolerance =
        2 * std::sqrt(2.) * largest_distance(reference_rows(model, prompt, DType::bf16), exact);
    Runner runner(model, cuda_runner());
    const Rows rows = prompt_logits(runner, prompt, 1);
    EXPECT_LT(largest_distance(rows, exact), tolerance);
    EXPECT_EQ(prompt_logits(runner, prompt, 1), rows);
    EXPECT_EQ(joined(runner), 7);
  }
}

INSTANTIATE_TEST_SUITE_P(Blocks, CudaRelay, testing::ValuesIn(kBlockCases),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Shapes, CudaRelay, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace braid::golden
