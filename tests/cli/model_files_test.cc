// What the program says about model files that are unusual, or no models.
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
