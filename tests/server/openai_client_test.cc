// The `openai` package for Python against the server. Skipped without the package.
#include "server/python_script.h"
#include "server/scripted_server.h"

namespace braid::server {
namespace {

class OpenAiTest : public ScriptedTest {};

TEST_F(OpenAiTest, ClientRunsUnchanged) {
  const ScriptResult result = run_script(
      "openai_client.py",
      fmt::format("{} {}", server_->port(), GrammarLibrary::version().empty() ? "" : "grammars"));
  if (result.status == 77) GTEST_SKIP() << "BRAID_TEST_PYTHON: " << result.output;
  EXPECT_EQ(result.status, 0) << result.output;
}

}  // namespace
}  // namespace braid::server
