// What the program says about model files that are unusual, or no models.
#include <cmath>

#include "cli/program.h"

namespace braid::golden {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

// A copy of the model's folder with some keys of config.json changed.
std::string changed(const std::string& folder, const fs::path& copy, const json& patch) {
  fs::copy(folder, copy, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  std::ifstream file(copy / "config.json");
  json config = json::parse(file);
  config.update(patch);
  std::ofstream(copy / "config.json") << config;
  return copy.string();
}

TEST_F(CliTest, AHeadBesideATiedFlagIsUsedAndSaidOnce) {
  const std::string tied = changed(hf(), folder_ / "tied", {{"tie_word_embeddings", true}});
  const std::string options = " -p x -n 4 --ignore-eos --json --temperature 0 --device cpu";
  const Outcome o = braid("run -m " + tied + options);
  EXPECT_EQ(o.status, 0);
  EXPECT_THAT(o.err, HasSubstr("tie_word_embeddings is true, but 'lm_head.weight' is stored"));
  EXPECT_EQ(std::ranges::count(o.err, '\n'), 1) << o.err;
  EXPECT_EQ(json::parse(o.out)["output_ids"],
            json::parse(braid("run -m " + hf() + options).out)["output_ids"]);
}

// A model with dynamic RoPE, made for 64 tokens, turns all keys of a job by --ctx's base, whatever
// steps bring them: like a model of the same length with that base.
TEST_F(CliTest, DynamicRopeHasOneBaseForAJob) {
  const json rope = {{"rope_type", "dynamic"}, {"factor", 2.0}, {"rope_theta", 10000.0}};
  const json dynamic = {{"rope_parameters", rope}, {"max_position_embeddings", 64}};
  const std::string stretched = changed(hf(), folder_ / "dynamic", dynamic);
  std::ifstream file(folder_ / "hf" / "config.json");
  const json config = json::parse(file);
  const double C = config.at("hidden_size"), heads = config.at("num_attention_heads");
  const double D = config.value("head_dim", C / heads);
  const double base = 10000.0 * std::pow(2 * 200.0 / 64 - 1, D / (D - 2));
  const std::string fixed =
      changed(hf(), folder_ / "fixed",
              {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", base}}},
               {"max_position_embeddings", 200}});
  const std::filesystem::path text = folder_ / "text.txt";
  std::ofstream(text) << [] {
    std::string words;
    for (int i = 0; i < 90; ++i) words += fmt::format("word {} ", i * 7919 % 1000);
    return words;
  }();
  const std::string score = " --ctx 200 --threads 1 --device cpu -f " + text.string();
  const Outcome want = braid("perplexity -m " + fixed + score);
  ASSERT_EQ(want.status, 0) << want.err;
  EXPECT_EQ(braid("perplexity -m " + stretched + score).out, want.out);
  EXPECT_EQ(braid("perplexity -m " + stretched + score + " --sp ring --ranks 2").status, 0);
  const std::string run = "run -m " + stretched + " -n 1 --threads 1 --device cpu ";
  expect_refused(run + "--ctx 100 -f " + text.string(), 2, "the context holds 100");
  expect_refused(run + "-f " + text.string(), 2, "the context holds 64");
  // An answer ends where its base does; no key is turned anew.
  for (const auto& [context, tokens] : {std::pair("", 64), {"--ctx 100 ", 100}}) {
    const Outcome cut =
        braid("run -m " + stretched + " -p x -n 150 --ignore-eos --json --threads 1 --device cpu " +
              context);
    ASSERT_EQ(cut.status, 0) << cut.err;
    EXPECT_THAT(cut.err,
                HasSubstr(fmt::format("it holds {} tokens, for which RoPE's base was made; "
                                      "--ctx with more fixes a larger base",
                                      tokens)));
    const json report = json::parse(cut.out);
    EXPECT_EQ(report["finish_reason"], "length");
    EXPECT_EQ(report["context"], tokens);
    EXPECT_LT(std::ssize(report["output_ids"].get<std::vector<int>>()), tokens);
  }
  expect_refused("perplexity -m " + hf() + " --ctx 100000 -f " + text.string(), 2,
                 "--ctx is 100000");
}

TEST_F(CliTest, FoldersOfOtherEnginesAreNamed) {
  const std::string awq =
      changed(hf(), folder_ / "awq", {{"quantization_config", {{"quant_method", "awq"}}}});
  expect_refused("run -m " + awq + " -p x", 1, "quantized by 'awq'");
  const fs::path pointer = folder_ / "pointer.gguf";
  std::ofstream(pointer) << "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
  expect_refused("inspect " + pointer.string(), 2, "git lfs pull");
}

}  // namespace
}  // namespace braid::golden
