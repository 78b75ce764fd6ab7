#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "golden/support/random_model.h"

// The program as a process, on a small random model; GPUs are hidden from it.
namespace braid::golden {

struct Outcome {
  int status = -1;
  std::string out;
  std::string err;
};

class CliTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    folder_ = std::filesystem::temp_directory_path() / fmt::format("braid_cli_{}", getpid());
    std::filesystem::create_directories(folder_ / "hf");
    write_hf_folder(load_random_model("llama2_mha"), folder_ / "hf");
    write_gguf(load_random_model("llama2_mha"), "f32", folder_ / "model.gguf");
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }

  static std::string read(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // `arguments` is shell text; standard input is empty unless it says otherwise.
  static Outcome braid(const std::string& arguments) {
    const std::filesystem::path out = folder_ / "out", err = folder_ / "err";
    const std::string command = fmt::format("timeout 60 {}/braid {} > {} 2> {} < /dev/null",
                                            BRAID_BIN_DIR, arguments, out.string(), err.string());
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(out), read(err)};
  }
  static std::string hf() { return (folder_ / "hf").string(); }
  static std::string gguf() { return (folder_ / "model.gguf").string(); }

  // One line on standard error that holds `text`, nothing on standard output.
  static void expect_refused(const std::string& arguments, int status, const std::string& text) {
    const Outcome o = braid(arguments);
    EXPECT_EQ(o.status, status) << arguments << "\n" << o.err;
    EXPECT_THAT(o.err, testing::HasSubstr(text)) << arguments;
    EXPECT_EQ(std::ranges::count(o.err, '\n'), 1) << o.err;
    EXPECT_EQ(o.out, "") << arguments;
  }

  static std::string path(const std::string& name) { return (folder_ / name).string(); }

  static inline std::filesystem::path folder_;
};

}  // namespace braid::golden
