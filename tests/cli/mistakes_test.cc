// Mistakes, and commands as users of other programs type them: each works, or a line tells the
// remedy.
#include <cstring>
#include <functional>
#include <sstream>

#include "cli/program.h"

namespace braid::golden {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

class MistakesTest : public CliTest {
 protected:
  MistakesTest() {
    for (const char* name : {"HOME", "XDG_CACHE_HOME"}) setenv(name, folder_.c_str(), 1);
  }

  static std::vector<int32_t> ids(const std::string& arguments) {
    const Outcome o = braid(arguments + " --json");
    EXPECT_EQ(o.status, 0) << arguments << ": " << o.err;
    if (o.status != 0) return {};
    return json::parse(o.out)["output_ids"];
  }
  static std::string run() { return "run -m " + hf() + " --ignore-eos "; }
  static void copy_with(const std::string& name, const std::function<void(json&)>& change) {
    fs::create_directories(folder_ / name);
    fs::copy(hf(), folder_ / name,
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    json config = json::parse(read(folder_ / name / "config.json"));
    change(config);
    std::ofstream(folder_ / name / "config.json") << config;
  }
};

TEST_F(MistakesTest, OtherProgramsSpellingsWork) {
  const std::vector<int32_t> want = ids(run() + "-p 'hello world' -n 6 --temperature 0.7");
  for (const std::string& arguments :
       {run() + "-p 'hello world' --n-predict 6 --temp 0.7",
        run() + "-p 'hello world' --predict 6 -temp 0.7",
        run() + "-p 'hello world' -n 6 --temp 0.7 -ngl 99 -t 2 -c 256",
        run() + "-p 'hello world' -n 6 --temp 0.7 --threads 1 --ctx-size 256 -s 0",
        run() + "-p 'hello world' -n 6 --temp 0.7 -tp 2",
        run() + "-p 'hello world' -n 6 --temp 0.7 -tp=2",
        run() + "-p 'hello world' -n 6 --temp 0.7 --tensor-parallel-size 2",
        "run " + hf() + " -p 'hello world' -n 6 --temp 0.7 --ignore-eos",
        "run " + hf() + " 'hello world' -n 6 --temp 0.7 --ignore-eos",
        run() + "'hello world' -n 6 --temp 0.7",
        hf() + " -p 'hello world' -n 6 --temp 0.7 --ignore-eos",
        "-m " + hf() + " -p 'hello world' -n 6 --temp 0.7 --ignore-eos",
        "chat -m " + hf() + " -p 'hello world' -n 6 --temp 0.7 --ignore-eos"}) {
    EXPECT_EQ(ids(arguments), want) << arguments;
  }
  EXPECT_GT(ids(run() + "-p x -n -1 -c 64").size(), 40u) << "-1: to the end of the context";
  EXPECT_EQ(braid("inspect -m " + hf()).out, braid("inspect " + hf()).out);
}

TEST_F(MistakesTest, WhatIsMisspelledNamesWhatIsNear) {
  const auto hint = [](const std::string& arguments, const std::string& text) {
    expect_refused(arguments, 2, text);
  };
  hint(run() + "-p x --tempature 3", "did you mean --temperature?");
  hint(run() + "-p x --bogus-thing 3", "braid run has no option --bogus-thing; braid run --help");
  hint(run() + "-p x -fa on", "leave -fa out");
  hint("rum -m x", "there is no 'rum', did you mean run?");
  hint("server", "there is no 'server', did you mean serve?");
  hint("run " + hf() + " one two", "'two' is one argument too many");
  hint(run() + "-p x more", "'more' is one argument too many: -p gives the prompt");
  hint(run() + "-p x -n -2", "without -n, as with -1, an answer may go on to the end");
  hint(run() + "-p x -c 1", "--ctx is 1, wanted 2 to 512");
  hint(run() + "-p x --schedule overlp", "overlap");
  hint(run() + "-p x --sp ring", "--ranks N says how many");
  hint(run() + "-p x --tp 100", "4 query heads");
  hint(run() + "-p x --device gpu", "wanted cpu, cuda");
  hint("bench --config x.json", "--random-weights");
  hint("perplexity -m " + hf(), "--file is required (braid perplexity --help says more)");
  hint("completion tcsh", "wanted bash, zsh or fish");
}

TEST_F(MistakesTest, ModelsThatAreNotThere) {
  const auto hint = [](const std::string& model, int status, const std::string& text) {
    expect_refused("run -m " + model + " -p x", status, text);
  };
  hint("org/repo", 1, "`hf download org/repo`");
  hint("tiny", 1, "no model of that name in");
  fs::create_directories(folder_ / "empty");
  hint((folder_ / "empty").string(), 1, "it has no config.json");
  std::ofstream(folder_ / "cut.gguf") << read(gguf()).substr(0, 100000);
  hint((folder_ / "cut.gguf").string(), 1, "cut off or broken");
  std::ofstream(folder_ / "text.md") << "# A page\n";
  hint((folder_ / "text.md").string(), 2, "is not a model");
  for (const char* other : {"Gemma3ForCausalLM", "Phi3ForCausalLM"}) {
    copy_with(other, [&](json& config) { config["architectures"] = {other}; });
    const std::string named = fmt::format("unknown architecture '{}' (known: ", other);
    hint(path(other), 1, named);
    hint(path(other), 1, ", LlamaForCausalLM, ");
  }
}

TEST_F(MistakesTest, BlocksThatAreNotReadAreNamedBesideThoseThatAre) {
  const std::string name = "blk.0.attn_q.weight";  // rows of 64: whole blocks of 32
  for (const auto& [type, called] : {std::pair{20u, "'iq4_nl'"}, {39u, "'mxfp4'"}}) {
    std::string bytes = read(gguf());
    const size_t at = bytes.find(name);
    ASSERT_NE(at, std::string::npos);
    // Behind a tensor's name: the number of its dimensions, two of 8 bytes each, its type.
    const auto code = static_cast<uint32_t>(type);
    std::memcpy(bytes.data() + at + name.size() + 4 + 16, &code, sizeof(code));
    std::ofstream(folder_ / "blocks.gguf") << bytes;
    const Outcome o = braid("run -m " + path("blocks.gguf") + " -p x");
    EXPECT_EQ(o.status, 1);
    EXPECT_THAT(o.err, HasSubstr(fmt::format("tensor '{}'", name)));
    EXPECT_THAT(o.err, HasSubstr(fmt::format("type {} is not supported, f32, f16, ", called)));
    EXPECT_THAT(o.err, HasSubstr("q4_k"));
    EXPECT_EQ(std::ranges::count(o.err, '\n'), 1) << o.err;
  }
}

TEST_F(MistakesTest, PromptsThatDoNotFitOrAreNoText) {
  expect_refused(run() + "-p '" + std::string(3000, 'x') + "'", 2,
                 "the context holds 512: at most 511 fit with room for an answer");
  std::ofstream(folder_ / "latin.txt") << "caf\xe9";
  expect_refused(run() + "-f " + path("latin.txt"), 2, "is not valid UTF-8: byte 0xe9 at offset 3");
}

TEST_F(MistakesTest, CommandsThatOtherProgramsHave) {
  EXPECT_EQ(braid("version").out, braid("--version").out);
  EXPECT_EQ(braid("help").out, braid("--help").out);
  EXPECT_THAT(braid("help serve").out, HasSubstr("OpenAI"));
  expect_refused("plan --config " + path("hf/config.json") + " --profile b200", 1,
                 "none such comes with Braid (they are: a100, h100, h200)");
  const std::string divided = "plan --config " + path("hf/config.json") + " --sp ring ";
  expect_refused(divided, 2, "wanted are 2 ranks or more");
  expect_refused(divided + "--tp 2 --schedule auto", 2, "name a strategy");
}

// In builds with CUDA.
TEST_F(MistakesTest, BenchmarksOfGpusSayThatThereIsNone) {
  for (const auto& file : fs::directory_iterator(BRAID_BIN_DIR)) {
    if (!file.path().filename().string().starts_with("bench_cuda_")) continue;
    const std::string out = path("gpu_bench");
    const int status =
        std::system(fmt::format("timeout 60 {} > {} 2>&1", file.path().string(), out).c_str());
    EXPECT_EQ(WEXITSTATUS(status), 1) << file.path();
    EXPECT_THAT(read(out), testing::ContainsRegex("^[a-z_]+: .*(GPU|NVIDIA driver).*\n$"));
  }
}

TEST_F(MistakesTest, LongWorkSaysWhatItDoesFirst) {
  // In a file as on a terminal: 0.3 GiB of weights, before anything is measured.
  const std::string config = path("large.json");
  json shape = json::parse(read(folder_ / "hf" / "config.json"));
  shape["vocab_size"] = 50000;
  shape["tie_word_embeddings"] = false;
  shape["hidden_size"] = 1536;
  shape["num_attention_heads"] = shape["num_key_value_heads"] = 24;
  shape["num_hidden_layers"] = 1;
  std::ofstream(config) << shape;
  const Outcome o =
      braid("bench --config " + config + " --random-weights --device cpu -p 0 -n 1 -d 0 -r 1");
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr(" GiB of random weights for " + config));
}

TEST_F(MistakesTest, ARunDrawsTheStepsThatItMade) {
  const std::string plot = path("run.svg");
  const Outcome o =
      braid(run() + "-p 'hello world' -n 5 --tp 2 --device cpu --threads 1 --plot " + plot);
  EXPECT_EQ(o.status, 0) << o.err;
  const std::string svg = read(plot);
  for (const char* text : {"<svg ", "computation</text>", "communication</text>",
                           "measured: 1 token, ", "rank 1 compute", "</svg>"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_THAT(svg, testing::ContainsRegex("the last of [0-9]+ with this schedule"));
  EXPECT_FALSE(fs::exists(plot + ".part"));
  expect_refused(run() + "-p x --plot " + path("none/x.svg"), 1, "cannot write --plot");
  expect_refused("run -m " + gguf() + " -p x --plot " + gguf(), 2, "would replace what is read");
}

TEST_F(MistakesTest, AModelOfTheHubsCacheRunsByItsName) {
  const fs::path repository = folder_ / "huggingface/hub/models--acme--tiny";
  fs::create_directories(repository / "refs");
  fs::create_directories(repository / "snapshots");
  std::ofstream(repository / "refs/main") << "abc";
  std::error_code ignored;
  fs::create_directory_symlink(hf(), repository / "snapshots/abc", ignored);
  const std::string rest = " -p 'hello world' -n 4 --ignore-eos";
  EXPECT_EQ(ids("run -m acme/tiny" + rest), ids("run -m " + hf() + rest));
}

TEST_F(MistakesTest, WhatWillBeSlowIsSaid) {
  EXPECT_THAT(braid(run() + "-p x -n 2 --threads 500").err, HasSubstr("take turns: --threads"));
  EXPECT_EQ(braid(run() + "-p x -n 2 --threads 1").err.find("take turns"), std::string::npos);
}

TEST_F(MistakesTest, HelpWrapsAndPagesAreMadeOfTheSameTable) {
  setenv("COLUMNS", "70", 1);
  const std::string help = braid("help run").out;
  unsetenv("COLUMNS");
  std::istringstream lines(help.substr(0, help.find("In a terminal")));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 70u) << line;
  EXPECT_LT(help.find("--max-tokens"), help.find("Sampling:"));
  EXPECT_LT(help.find("Sampling:"), help.find("Several ranks:"));
  const std::string man = braid("man").out, bash = braid("completion bash").out,
                    fish = braid("completion fish").out;
  for (const char* name : {"temperature", "max-tokens", "random-weights"}) {
    EXPECT_THAT(bash, HasSubstr(fmt::format("--{}", name)));
    EXPECT_THAT(fish, HasSubstr(fmt::format("-l {}", name)));
  }
  EXPECT_THAT(man, HasSubstr("max\\-tokens"));
  std::ofstream(folder_ / "braid.bash") << bash;
  const std::string probe = "source " + (folder_ / "braid.bash").string() +
                            "; COMP_WORDS=(braid run --temp); COMP_CWORD=2; _braid; "
                            "[[ \" ${COMPREPLY[*]} \" == *' --temperature '* ]]";
  std::ofstream(folder_ / "probe.sh") << probe << "\n";
  EXPECT_EQ(std::system(("bash " + (folder_ / "probe.sh").string()).c_str()), 0) << bash;
}

TEST_F(MistakesTest, CtrlCLeavesAWholeTrace) {
  const std::string trace = path("stopped.json");
  std::ofstream(folder_ / "stop.sh") << fmt::format(
      "{}/braid bench -m {} -p 0 -n 400 -r 1000 --threads 1 --device cpu --trace {} &\n"
      "for i in $(seq 300); do [ -s {}.part ] && break; sleep 0.1; done\n"
      "kill -INT $!\nwait $!\n",
      BRAID_BIN_DIR, gguf(), trace, trace);
  const int status = std::system(("bash " + path("stop.sh") + " > /dev/null 2>&1").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 130);
  ASSERT_TRUE(fs::exists(trace));
  EXPECT_TRUE(json::accept(read(trace)));
  EXPECT_FALSE(fs::exists(trace + ".part"));
}

}  // namespace
}  // namespace braid::golden
