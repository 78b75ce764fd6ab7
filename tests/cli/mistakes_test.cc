// What users of other programs type: it works, or one line says what to type.
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
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    for (const char* name : {"HOME", "XDG_CACHE_HOME"}) setenv(name, folder_.c_str(), 1);
  }
  ~MistakesTest() override { unsetenv("CUDA_VISIBLE_DEVICES"); }

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
  hint(run() + "-p x -n -2", "wanted at least 1, or -1");
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
  copy_with("gemma", [](json& config) { config["architectures"] = {"Gemma3ForCausalLM"}; });
  hint((folder_ / "gemma").string(), 1, "known: DeepseekV2ForCausalLM, ");
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
  EXPECT_NO_THROW((void)json::parse(read(trace)));
  EXPECT_FALSE(fs::exists(trace + ".part"));
}

}  // namespace
}  // namespace braid::golden
