// Models whose decode steps of one token join in a relay: against the scalar references, against
// the same launches apart, and against themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <regex>

#include "braid/kernels/cuda/decode_choice/decode_form.h"
#include "braid/ops/attention_block.h"
#include "golden/cuda/relay_models.h"

namespace braid::golden {
namespace {

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

// Every form of `--decode` on one, two and four GPUs: the same results, or the reason why there are
// none.
TEST_P(CudaRelay, EveryFormOfDecode) {
  const RelayCase& c = GetParam();
  for (const char* form :
       {"apart", "relay", "fused", "fused:cluster=1,scope=projected",
        "fused:cluster=3,scope=projected", "fused:cluster=16", "fused:exchange=memory",
        "fused:cluster=2,scope=projected,exchange=memory", "fused:parts=2",
        "fused:cluster=3,parts=4,scope=projected,exchange=memory", "fused:split=head",
        "fused:split=head,scope=projected,exchange=memory"}) {
    for (const int ranks : {1, 2, 4}) {
      if (ranks > 1 && (ranks > usable_gpus() || c.Hkv % ranks != 0 || is_quantized(c.weights))) {
        continue;
      }
      SCOPED_TRACE(fmt::format("{}, {} ranks", form, ranks));
      RunnerConfig config = cuda_runner(ranks);
      config.decode = form;
      const cuda::DecodeForm asked = cuda::parse_decode(form);
      const bool by_heads = asked.split == cuda::FusedSplit::head;
      Runner runner(*model_, config);
      const bool fused = asked.kind == cuda::DecodeKind::fused;
      // Blocks of ranks take the kernel of several tokens.
      const int64_t most = by_heads ? cuda::kFusedFewHeads : cuda::kFusedMaxGroup;
      if (fused && (is_quantized(c.weights) || c.Hq / c.Hkv > most ||
                    (ranks > 1 && (by_heads || c.C % 64 != 0)))) {
        EXPECT_THROW(prompt_logits(runner, prompt_, 1), Error);
        continue;
      }
      expect_exact(runner);
      const bool relay = asked.kind == cuda::DecodeKind::relay;
      if (!relay || (ranks == 1 && c.F % 8 == 0)) {
        EXPECT_EQ(joined(runner), relay ? 6 * c.layers + 1 : 0);
      }
      EXPECT_THAT(runner.explain(), testing::Contains(testing::HasSubstr("(chosen)")));
      const Program& program = runner.last_step(0).executor->program();
      EXPECT_EQ(std::ranges::count(program.ops, &ops::kAttentionBlock, &Op::def),
                fused ? c.layers : 0);
    }
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
INSTANTIATE_TEST_SUITE_P(Shapes, CudaRelay, testing::ValuesIn(kRelayCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace braid::golden
