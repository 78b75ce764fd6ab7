// The page at `/`, its numbers and its picture.
#include "server/python_script.h"
#include "server/scripted_server.h"

namespace braid::server {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class PageTest : public ScriptedTest {};

TEST_F(PageTest, FilesNumbersAndAPicture) {
  Client client(server_->port());
  const Reply page = client.get("/");
  EXPECT_THAT(page.head, HasSubstr("Content-Type: text/html"));
  EXPECT_THAT(page.body, StartsWith("<!doctype html>"));
  for (const char* file : {"page.css", "page.js"}) {
    EXPECT_THAT(page.body, HasSubstr(fmt::format("\"{}\"", file)));
    std::ifstream source(fmt::format("{}/../src/braid/server/page/{}", BRAID_TEST_DATA, file));
    EXPECT_EQ(client.get(fmt::format("/{}", file)).body,
              std::string(std::istreambuf_iterator<char>(source), {}));
  }
  const Json before = client.get("/stats").json();
  EXPECT_EQ(post(asking("@think")).status, 200);
  const Json after = client.get("/stats").json();
  EXPECT_EQ(after["model"], "tiny");
  EXPECT_GT(after["steps"], before["steps"]);
  EXPECT_GE(after["answer_tokens"].get<int>(), before["answer_tokens"].get<int>() + 6);
  EXPECT_EQ(after["kv_pages"]["held"], 0);
  EXPECT_GT(after["kv_pages"]["total"], 0);
  const Reply picture = client.get("/step.svg");
  EXPECT_THAT(picture.head, HasSubstr("Content-Type: image/svg+xml"));
  EXPECT_THAT(picture.body, StartsWith("<svg"));
}

TEST_F(PageTest, RunsInABrowser) {
  const ScriptResult result = run_script("page_client.py", std::to_string(server_->port()));
  if (result.status == 77) GTEST_SKIP() << "BRAID_TEST_PYTHON: " << result.output;
  EXPECT_EQ(result.status, 0) << result.output;
}

}  // namespace
}  // namespace braid::server
