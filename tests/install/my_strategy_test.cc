// A user's strategy: built out of tree against the installed package, loaded by path, equal to
// `sequential` in what it computes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "golden/support/random_model.h"

namespace braid::golden {
namespace {

namespace fs = std::filesystem;

class InstallTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("braid_install_{}", getpid());
    fs::create_directories(folder_ / "model");
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Runs shell text; its output goes to a log that a failure shows.
  void run(const std::string& command) {
    const fs::path log = folder_ / "log";
    const int status = std::system(fmt::format("({}) > {} 2>&1", command, log.string()).c_str());
    std::ifstream file(log);
    ASSERT_EQ(WEXITSTATUS(status), 0) << command << "\n"
                                      << std::string(std::istreambuf_iterator<char>(file), {});
  }
  std::string path(const char* name) const { return (folder_ / name).string(); }

  std::vector<int> output_ids(const std::string& schedule) {
    run(
        fmt::format("timeout 60 {}/bin/braid run -m {} -p 'a b c d e f g h i j k l m n o p q r s t "
                    "u v w x y z' -n 12 --tp 2 --threads 1 --ignore-eos --schedule {} --json > {}",
                    path("installed"), path("model"), schedule, path("out.json")));
    std::ifstream file(path("out.json"));
    return nlohmann::json::parse(file).at("output_ids").get<std::vector<int>>();
  }

  fs::path folder_;
};

TEST_F(InstallTest, AStrategyBuiltOutOfTreeRuns) {
  run(fmt::format("{} --install {} --prefix {}", BRAID_CMAKE, BRAID_BUILD_DIR, path("installed")));
  run(fmt::format("{} -S {}/examples/my_strategy -B {} -DCMAKE_PREFIX_PATH={} && {} --build {}",
                  BRAID_CMAKE, BRAID_SOURCE_DIR, path("build"), path("installed"), BRAID_CMAKE,
                  path("build")));
  write_hf_folder(load_random_model("llama2_mha"), folder_ / "model");
  const std::vector<int> expected = output_ids("sequential");
  EXPECT_EQ(expected.size(), 12u);
  EXPECT_EQ(output_ids(path("build/my_strategy.so")), expected);
}

TEST_F(InstallTest, TheExampleIsShort) {
  std::ifstream file(fmt::format("{}/examples/my_strategy/my_strategy.cc", BRAID_SOURCE_DIR));
  const auto lines = std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  EXPECT_GT(lines, 0);
  EXPECT_LE(lines, 40);
}

}  // namespace
}  // namespace braid::golden
