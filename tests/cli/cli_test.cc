// Runs the program as a user would, on small random models: results, messages and exit statuses.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "cli/program.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"

namespace braid::golden {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

TEST_F(CliTest, HelpAndVersion) {
  const std::string version = braid("--version").out;
  for (const char* part : {"braid 0.", "CUDA: ", "instruction sets: ", "cpu  "}) {
    EXPECT_THAT(version, HasSubstr(part));
  }
  EXPECT_EQ(braid("version").out, version);
  EXPECT_THAT(braid("--list-devices").out, HasSubstr("cpu  "));
  for (const char* command :
       {"run", "tokenize", "detokenize", "perplexity", "inspect", "bench", "plan", "calibrate"}) {
    const Outcome o = braid(fmt::format("{} --help", command));
    EXPECT_EQ(o.status, 0);
    EXPECT_THAT(o.out, HasSubstr("Example")) << command;
    EXPECT_EQ(braid(fmt::format("help {}", command)).out, o.out);
  }
}

TEST_F(CliTest, WrongUseGetsOneLineAndItsStatus) {
  expect_refused("", 2, "a command is wanted: run");
  setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  expect_refused("run -p x", 2, "no model is named (-m)");
  unsetenv("XDG_CACHE_HOME");
  expect_refused("run -m " + hf() + " -p x --bogus", 2, "--bogus");
  expect_refused("run -m /no/such/model -p x", 1, "/no/such/model: no such file");
  expect_refused("run -m " + (folder_ / "hf/config.json").string() + " -p x", 2, "is not a model");
  expect_refused("run -m " + hf() + " -p x -n 0", 2, "-n is 0");
  expect_refused("run -m " + hf() + " -p ''", 2, "--prompt: its value is empty");
  expect_refused("run -m " + hf(), 2, "prompt is empty");
  expect_refused("run -m " + hf() + " -p \"$(printf 'a\\377b')\"", 2, "byte 0xff at offset 1");
  expect_refused("run -m " + hf() + " -p x --tp 100", 2, "4 query heads");
  expect_refused("run -m " + hf() + " -p x --tp 0", 2, "wanted at least 1");
  expect_refused("run -m " + hf() + " -p x --device cpu --ep 2", 2, "this model has no experts");
  expect_refused("run -m " + hf() + " -p x --device cpu --tp 2 --ep 3", 2, "over 3 ranks");
  expect_refused("run -m " + hf() + " -p x --device cpu --sp ring --ranks 2 --ep 2", 1, "--sp");
  expect_refused("run -m " + hf() + " -p x --device cpu --dp 0", 2, "--dp is 0, wanted 1 to");
  expect_refused("run -m " + hf() + " -p x --device cpu --dp 2 --ep 2", 2, "no experts");
  expect_refused("run -m " + hf() + " -p x --device cpu --sp ring --ranks 2 --dp 2", 1, "--sp");
  expect_refused("run -m " + hf() + " -p x --threads -1", 2, "-1 threads");
  expect_refused("run -m " + hf() + " -p x --temperature -3", 2, "temperature is -3");
  expect_refused("run -m " + hf() + " -p x -f y", 2, "one of them");
  expect_refused("run -m " + hf() + " -f /no/such/prompt", 1, "/no/such/prompt");
  expect_refused("detokenize -m " + hf() + " 5 99999", 2, "99999");
  expect_refused("perplexity -m " + hf() + " -f /dev/null", 2, "one chunk takes");
  expect_refused("bench -m " + hf() + " -p 0 -n 0", 2, "nothing to measure");
}

TEST_F(CliTest, UnknownArchitectureListsTheKnownOnes) {
  const fs::path other = folder_ / "other";
  fs::copy(hf(), other, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  json config = json::parse(read(other / "config.json"));
  config["architectures"] = {"MambaForCausalLM"};
  std::ofstream(other / "config.json") << config;
  expect_refused(
      "run -m " + other.string() + " -p x", 1,
      "unknown architecture 'MambaForCausalLM' (known: ChatGLMForConditionalGeneration, ");
}

TEST_F(CliTest, AContextThatIsTooLongSaysTheLimit) {
  const fs::path prompt = folder_ / "long.txt";
  std::ofstream(prompt) << std::string(20000, 'x') << " " << std::string(20000, 'y');
  expect_refused("run -m " + hf() + " -f " + prompt.string(), 2, "the context holds 512");
  // Within the model's positions ranks that divide a prompt name their room.
  const std::string ranks = "run --threads 1 --sp ring --ranks 2 -m " + hf() + " ";
  expect_refused(ranks + "-f " + prompt.string(), 2, "; the model has 512 positions");
  expect_refused(ranks + "--ctx 64 -p '" + std::string(200, 'x') + "'", 2,
                 "and each of 2 ranks has room for");
}

TEST_F(CliTest, AnAnswerThatFillsTheContextSaysSo) {
  const Outcome all = braid("run -m " + gguf() + " -p x --ignore-eos --json");
  EXPECT_THAT(all.err, HasSubstr("it holds 512 tokens"));
  EXPECT_EQ(json::parse(all.out).at("finish_reason"), "length");
  EXPECT_EQ(braid("run -m " + gguf() + " -p x --ignore-eos --json -n 9 --device cpu").err, "");
}

TEST_F(CliTest, OutputsThatTakeNothingFailTheJob) {
  const Outcome full =
      braid("run -m " + hf() + " -p x -n 4 --ignore-eos --device cpu | true; exit 0");
  EXPECT_EQ(full.err, "") << "a pipe that closes is no error";
  const std::string command = fmt::format("{}/braid inspect {} > /dev/full 2> {}", BRAID_BIN_DIR,
                                          gguf(), (folder_ / "err").string());
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(read(folder_ / "err"), HasSubstr("cannot write to the output"));
}

TEST_F(CliTest, JsonHoldsEverythingThatIsPromised) {
  const Case c = load_golden("llama2_mha").cases.back();
  const json ids = json::parse(braid("tokenize -m " + hf() + " --json 'hello world'").out);
  ASSERT_TRUE(ids.is_array());
  const Outcome o =
      braid("run -m " + hf() + " -p 'hello world' -n 8 --ignore-eos --json --logprobs 3");
  ASSERT_EQ(o.status, 0) << o.err;
  const json run = json::parse(o.out);
  EXPECT_EQ(run["prompt_ids"], ids);
  ASSERT_EQ(run["output_ids"].size(), 8u);
  EXPECT_EQ(run["finish_reason"], "length");
  EXPECT_TRUE(run["text"].is_string());
  ASSERT_EQ(run["logprobs"].size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    const json& token = run["logprobs"][i];
    EXPECT_EQ(token["id"], run["output_ids"][i]);
    ASSERT_EQ(token["top"].size(), 3u);
    EXPECT_EQ(token["top"][0]["id"], token["id"]) << "greedy takes the most likely";
    EXPECT_EQ(token["top"][0]["logprob"], token["logprob"]);
    EXPECT_LE(token["logprob"].get<double>(), 0);
  }
  for (const char* key : {"load_ms", "ttft_ms", "prompt_tps", "decode_tps"}) {
    EXPECT_GT(run["timings"][key].get<double>(), 0) << key;
  }
  EXPECT_GT(run["peak_rss_mb"].get<double>(), 0);
}

TEST_F(CliTest, RanksThreadsAndFormatsGiveTheSameTokens) {
  const std::string rest = " -p 'The quick brown fox' -n 16 --ignore-eos --json";
  const json one = json::parse(braid("run -m " + hf() + rest).out)["output_ids"];
  for (const std::string options :
       {"--tp 2", "--tp 4 --threads 1", "--threads 3", "--tp 3 --threads 2"}) {
    EXPECT_EQ(json::parse(braid("run -m " + hf() + rest + " " + options).out)["output_ids"], one)
        << options;
  }
  EXPECT_EQ(json::parse(braid("run -m " + gguf() + rest).out)["output_ids"], one);
}

TEST_F(CliTest, SeedsDecideWhatIsSampled) {
  const auto text = [&](int seed) {
    return braid(fmt::format("run -m {} -p abc -n 24 --ignore-eos --temperature 2 --seed {}", hf(),
                             seed))
        .out;
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
}

TEST_F(CliTest, StopTextsEndTheAnswerAndAreNotPartOfIt) {
  const std::string run = "run -m " + hf() + " -p 'hello world' -n 40 --ignore-eos --json";
  const std::string text = json::parse(braid(run).out)["text"];
  size_t at = text.size() / 2;
  while (at < text.size() && !std::isalnum(static_cast<unsigned char>(text[at]))) ++at;
  if (at == text.size()) GTEST_SKIP() << "no plain character in the answer";
  const std::string stop = text.substr(at, 1);
  const json stopped = json::parse(braid(run + " --stop '" + stop + "'").out);
  EXPECT_EQ(stopped["text"], text.substr(0, text.find(stop)));
  EXPECT_EQ(stopped["finish_reason"], "stop");
}

TEST_F(CliTest, TokenizeAndDetokenizeAreInverse) {
  const json ids =
      json::parse(braid("tokenize -m " + hf() + " --no-add-special --json 'Hello there'").out);
  std::string list;
  for (const json& id : ids) list += " " + id.dump();
  EXPECT_EQ(braid("detokenize -m " + hf() + list).out, "Hello there\n");
}

TEST_F(CliTest, PerplexityAgreesWithItsLogprobs) {
  const fs::path text = folder_ / "text.txt";
  std::ofstream(text) << "one two three four five six seven eight nine ten eleven twelve";
  const Outcome plain = braid("perplexity -m " + hf() + " --ctx 8 -f " + text.string());
  EXPECT_THAT(plain.out, HasSubstr("chunk    1"));
  const json a =
      json::parse(braid("perplexity -m " + hf() + " --ctx 8 --json -f " + text.string()).out);
  const json b = json::parse(
      braid("perplexity -m " + hf() + " --ctx 8 --json --tp 2 -f " + text.string()).out);
  EXPECT_EQ(a["tokens"].get<int>() % 4, 0) << "four of each chunk of eight";
  EXPECT_GT(a["tokens"].get<int>(), 0);
  EXPECT_NEAR(a["perplexity"].get<double>(), b["perplexity"].get<double>(),
              1e-4 * a["perplexity"].get<double>());
}

TEST_F(CliTest, InspectAndBenchSpeakJson) {
  const json inspect = json::parse(braid("inspect --json " + gguf()).out);
  EXPECT_EQ(inspect["config"]["family"], "llama");
  EXPECT_FALSE(inspect["tensors"].empty());
  const json bench = json::parse(braid("bench -m " + hf() + " -p 16 -n 4 -r 2 --json").out);
  ASSERT_EQ(bench["tests"].size(), 2u);
  EXPECT_EQ(bench["tests"][0]["name"], "pp16");
  EXPECT_GT(bench["tests"][1]["bandwidth_share"].get<double>(), 0);
}

}  // namespace
}  // namespace braid::golden
