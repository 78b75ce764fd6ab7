// Ways to give a prompt, and the text of an answer.
#include "cli/program.h"

namespace braid::golden {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class PromptTest : public CliTest {};

TEST_F(PromptTest, MayBeTokenIds) {
  const std::string run = "run -m " + hf() + " -n 4 --ignore-eos --json ";
  const json text = json::parse(braid(run + "-p 'hello world'").out);
  const std::string ids = text["prompt_ids"].dump();  // [1,2,3]
  const json same = json::parse(braid(run + "--prompt-ids '" + ids + "'").out);
  EXPECT_EQ(same["prompt_ids"], text["prompt_ids"]);
  EXPECT_EQ(same["output_ids"], text["output_ids"]);
  EXPECT_EQ(json::parse(braid(run + "--prompt-ids '256 72,101'").out)["prompt_ids"],
            json({256, 72, 101}));
  expect_refused("run -m " + hf() + " --prompt-ids 1,x", 2, "--prompt-ids has 'x'");
  expect_refused("run -m " + hf() + " --prompt-ids 1,99999999999", 2, "'99999999999'");
  expect_refused("run -m " + hf() + " --prompt-ids 1,272", 2, "token id 272 in the prompt");
  expect_refused("run -m " + hf() + " --prompt-ids '[]'", 2, "the prompt is empty");
  expect_refused("run -m " + hf() + " --prompt-ids 1 -p x", 2, "--prompt-ids goes without -p");
}

TEST_F(PromptTest, SpellsSpecialTokensOnlyWhereAsked) {
  const std::string run = "run -m " + hf() + " -n 1 --json -p 'a<|im_end|>' ";
  const auto count = [&](const std::string& options) {
    const json ids = json::parse(braid(run + options).out)["prompt_ids"];
    return std::ranges::count(ids, json(258));
  };
  EXPECT_EQ(count(""), 0);
  EXPECT_EQ(count("--parse-special"), 1);
  EXPECT_EQ(count("--chat"), 1) << "the template's own";
  expect_refused("run -m " + hf() + " --chat --parse-special -p x", 2,
                 "--parse-special goes without --chat");
}

// SentencePiece's words begin with a space. A completion continues the prompt: the first word keeps
// the space.
TEST_F(PromptTest, ACompletionKeepsItsFirstSpace) {
  const std::filesystem::path folder = folder_ / "words";
  write_hf_folder(load_random_model("llama2_mha"), folder);
  json vocab = json::object();
  for (int id = 0; id < 272; ++id) vocab[fmt::format("\u2581w{}", id)] = id;
  const json tokenizer = {
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}}};
  std::ofstream(folder / "tokenizer.json") << tokenizer.dump();
  std::ofstream(folder / "tokenizer_config.json") << "{}";
  const Outcome o =
      braid("run -m " + folder.string() + " --prompt-ids 5,6,7 -n 5 --ignore-eos --json");
  ASSERT_EQ(o.status, 0) << o.err;
  const json run = json::parse(o.out);
  std::string expected;
  for (const json& id : run["output_ids"]) expected += " w" + id.dump();
  EXPECT_EQ(run["text"], expected);
}

TEST_F(PromptTest, LogprobsNameRowsOfTheHeadThatNoTokenHas) {
  const std::filesystem::path folder = folder_ / "padded";
  write_hf_folder(load_random_model("qwen2_tied"), folder);  // 301 rows, 272 tokens
  const Outcome o =
      braid("run -m " + folder.string() + " -p 'hello world' -n 4 --ignore-eos --logprobs 301");
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("[#300 "));
}

TEST_F(PromptTest, InspectSpeaksJsonOfNamesThatAreNotUtf8) {
  const std::string path = (folder_ / "caf\xe9.gguf").string();
  std::filesystem::copy_file(gguf(), path);
  const Outcome o = braid("inspect --json '" + path + "'");
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(json::parse(o.out)["path"].get<std::string>(), HasSubstr("caf\ufffd.gguf"));
}

}  // namespace
}  // namespace braid::golden
