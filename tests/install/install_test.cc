// Programs of users, built out of tree against the installed package: a strategy, loaded by path
// and equal to `sequential` in what it computes, and a program that links the engine.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "golden/support/random_model.h"

namespace braid::golden {
namespace {

namespace fs = std::filesystem;

class InstallTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("CUDA_VISIBLE_DEVICES", "", 1);  // texts of one device are compared
    folder_ = fs::temp_directory_path() / fmt::format("braid_install_{}", getpid());
    fs::create_directories(folder_ / "model");
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Runs shell text; its output goes to a log that a failure shows.
  void run(const std::string& command) {
    const fs::path log = folder_ / "log";
    const int status = std::system(fmt::format("({}) > {} 2>&1", command, log.string()).c_str());
    ASSERT_EQ(WEXITSTATUS(status), 0) << command << "\n" << read(log);
  }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  void install() {
    run(fmt::format("{} --install {} --prefix {}", BRAID_CMAKE, BRAID_BUILD_DIR,
                    path("installed")));
  }
  // An example as it was installed.
  void build_example(const char* name) {
    run(fmt::format(
        "{} -S {}/share/braid/examples/{} -B {} -DCMAKE_PREFIX_PATH={} && {} --build {}",
        BRAID_CMAKE, path("installed"), name, path("build"), path("installed"), BRAID_CMAKE,
        path("build")));
  }
  std::string read(const std::string& file) const {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
  }

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
  install();
  build_example("my_strategy");
  write_hf_folder(load_random_model("llama2_mha"), folder_ / "model");
  const std::vector<int> expected = output_ids("sequential");
  EXPECT_EQ(expected.size(), 12u);
  EXPECT_EQ(output_ids(path("build/my_strategy.so")), expected);
}

TEST_F(InstallTest, AProgramLinksTheEngine) {
  install();
  build_example("generate");
  write_hf_folder(load_random_model("llama2_mha"), folder_ / "model");
  run(fmt::format("timeout 60 {} {} 'a b c' > {}", path("build/generate"), path("model"),
                  path("own.txt")));
  run(fmt::format("timeout 60 {}/bin/braid run -m {} -p 'a b c' -n 16 > {}", path("installed"),
                  path("model"), path("braid.txt")));
  EXPECT_EQ(read(path("own.txt")), read(path("braid.txt")));
}

TEST_F(InstallTest, AProgramAnswersManyRequests) {
  install();
  build_example("many_requests");
  write_hf_folder(load_random_model("llama2_mha"), folder_ / "model");
  run(fmt::format("timeout 60 {} {} 'a b c' 'a b c' > {}", path("build/many_requests"),
                  path("model"), path("own.txt")));
  const std::string text = read(path("own.txt"));
  const std::string line = text.substr(0, text.find('\n') + 1);
  EXPECT_TRUE(line.starts_with("a b c") && line.size() > 7) << text;
  EXPECT_EQ(text, line + line);
}

TEST_F(InstallTest, AProgramChatsAndPlans) {
  install();
  build_example("chat");
  write_hf_folder(load_random_model("llama2_mha"), folder_ / "model");
  run(fmt::format("printf 'a b c\\nd e f\\n' | timeout 60 {} {} {} > {} 2> {}", path("build/chat"),
                  path("model"), path("plan.svg"), path("own.txt"), path("told.txt")));
  const std::string text = read(path("own.txt"));
  EXPECT_GE(std::ranges::count(text, '\n'), 2) << text;
  EXPECT_GT(text.size(), 10u);
  EXPECT_THAT(read(path("told.txt")), testing::HasSubstr("; 32 made"));
  const std::string svg = read(path("plan.svg"));
  EXPECT_TRUE(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
  EXPECT_THAT(svg, testing::HasSubstr("all_reduce"));
}

TEST_F(InstallTest, WhatIsInstalledAndRemoved) {
  install();
  for (const char* file :
       {"share/doc/braid/LICENSE", "share/doc/braid/README.md",
        "share/doc/braid/docs/architecture.md", "share/braid/examples/generate/main.cc",
        "share/braid/configs/llama-3-8b.json", "include/braid/braid.h"}) {
    EXPECT_TRUE(fs::exists(folder_ / "installed" / file)) << file;
  }
  std::ofstream(folder_ / "installed/share/braid/of_another") << "stays";
  run(fmt::format("{0} -DMANIFEST={1}/install_manifest.txt -P {1}/uninstall.cmake", BRAID_CMAKE,
                  BRAID_BUILD_DIR));
  std::vector<std::string> left;
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / "installed")) {
    if (!entry.is_directory()) left.push_back(entry.path().lexically_relative(folder_).string());
    EXPECT_FALSE(entry.is_directory() && fs::is_empty(entry) &&
                 entry.path().string().find("/braid/") != std::string::npos)
        << entry.path();
  }
  EXPECT_THAT(left, testing::ElementsAre("installed/share/braid/of_another"));
}

TEST_F(InstallTest, TheExamplesAreShort) {
  for (const auto& [file, most] : {std::pair{"my_strategy/my_strategy.cc", 40},
                                   {"generate/main.cc", 20},
                                   {"many_requests/main.cc", 20},
                                   {"chat/main.cc", 40},
                                   {"generate/CMakeLists.txt", 12}}) {
    const std::string text = read(fmt::format("{}/examples/{}", BRAID_SOURCE_DIR, file));
    const auto lines = std::ranges::count(text, '\n');
    EXPECT_GT(lines, 0) << file;
    EXPECT_LE(lines, most) << file;
  }
}

}  // namespace
}  // namespace braid::golden
