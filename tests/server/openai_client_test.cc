// The `openai` package for Python, where there is one.
#include <sys/wait.h>

#include <cstdio>

#include "server/scripted_server.h"

namespace braid::server {
namespace {

class OpenAiTest : public ScriptedTest {};

TEST_F(OpenAiTest, ClientRunsUnchanged) {
  const char* python = std::getenv("BRAID_TEST_PYTHON");
  const std::string command =
      fmt::format("timeout 120 {} -B {}/server/openai_client.py {} {} 2>&1",
                  python == nullptr ? "python3" : python, BRAID_TEST_DATA, server_->port(),
                  GrammarLibrary::version().empty() ? "" : "grammars");
  FILE* const pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string text;
  for (char part[4096]; const size_t n = std::fread(part, 1, sizeof part, pipe);)
    text.append(part, n);
  const int status = pclose(pipe);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == 77) GTEST_SKIP() << "BRAID_TEST_PYTHON names no Python with openai: " << text;
  EXPECT_EQ(code, 0) << text;
}

}  // namespace
}  // namespace braid::server
