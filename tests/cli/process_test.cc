// What the program says of its own process, and what others do to its files.
#include <sys/resource.h>

#include "cli/program.h"

namespace braid::golden {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class ProcessTest : public CliTest {};

// The prompt comes from a pipe that is opened when the model is there already.
TEST_F(ProcessTest, AModelFileThatIsCutWhileItIsUsedIsOneLine) {
  for (const std::string options : {"--threads 1", "--threads 2", "--tp 2 --threads 1"}) {
    fs::copy_file(gguf(), path("cut.gguf"), fs::copy_options::overwrite_existing);
    const std::string script = fmt::format(
        "cd {}; rm -f pipe; mkfifo pipe; timeout 60 {}/braid run -m cut.gguf -f pipe -n 4 {} "
        "> out 2> err & exec 3> pipe; truncate -s 4096 cut.gguf; echo abc >&3; exec 3>&-; wait $!",
        folder_.string(), BRAID_BIN_DIR, options);
    const int status = std::system(script.c_str());
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 1);
    EXPECT_EQ(read(path("out")), "");
    EXPECT_THAT(read(path("err")),
                StartsWith("braid: cut.gguf: the file was cut while it was in use: it had "));
    EXPECT_THAT(read(path("err")), EndsWith(" bytes and now has 4096\n"));
  }
}

// A program of 300 MB starts another: the other's peak of memory is its own.
TEST_F(ProcessTest, PeakMemoryIsThePrograms) {
  const std::vector<char> ballast(300 << 20, 'x');
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen(path("out").c_str(), "w", stdout) == nullptr) _exit(127);
    execl(BRAID_BIN_DIR "/braid", "braid", "run", "-m", hf().c_str(), "-p", "abc", "-n", "2",
          "--json", nullptr);
    _exit(127);
  }
  int status = 0;
  rusage usage{};
  ASSERT_EQ(wait4(child, &status, 0, &usage), child);
  ASSERT_EQ(status, 0);
  const double peak = json::parse(read(path("out")))["peak_rss_mb"];
  EXPECT_GT(peak, 1);
  EXPECT_LT(peak, 200);
  EXPECT_EQ(ballast[ballast.size() / 2], 'x');
}

// A text whose ids repeat every eight: chunks that begin with BOS are equal.
TEST_F(ProcessTest, EachChunkOfAPerplexityBeginsAsATextDoes) {
  fs::copy(hf(), path("bos"), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  json tokenizer = json::parse(read(path("bos/tokenizer.json")));
  tokenizer["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<|endoftext|>"}, {"type_id", 0}}}},
        {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"pair", json::array()},
      {"special_tokens",
       {{"<|endoftext|>",
         {{"id", "<|endoftext|>"}, {"ids", {256}}, {"tokens", {"<|endoftext|>"}}}}}}};
  std::ofstream(path("bos/tokenizer.json")) << tokenizer.dump();
  std::string text;
  for (int i = 0; i < 24; ++i) text += "xbcdfgj ";
  std::ofstream(path("text.txt")) << text;
  const auto chunks = [&](const std::string& model) {
    const Outcome o = braid("perplexity --ctx 64 -m " + model + " -f " + path("text.txt"));
    EXPECT_EQ(o.status, 0) << o.err;
    std::vector<std::string> values;
    std::istringstream lines(o.out);
    for (std::string line; std::getline(lines, line) && line.starts_with("chunk");) {
      values.push_back(line.substr(12, 10));
    }
    return values;
  };
  const std::vector<std::string> with = chunks(path("bos"));
  EXPECT_EQ(with, std::vector(3, with.at(0)));
  const std::vector<std::string> without = chunks(hf());
  EXPECT_EQ(without, std::vector(3, without.at(0)));
  EXPECT_NE(with.at(0), without.at(0));
}

}  // namespace
}  // namespace braid::golden
