// Requests that are wrong, clients that misbehave or go away, limits, and the documents.
#include <cstdlib>
#include <sstream>
#include <thread>

#include "braid/server/schema/endpoints.h"
#include "server/fixture.h"

namespace braid::server {
namespace {

using testing::HasSubstr;

TEST_F(ServerTest, BadBodiesGet400AndTheFieldsName) {
  const std::vector<std::array<std::string, 3>> cases = {
      // body, param, part of the message
      {"", "", "is no valid JSON"},
      {"[1]", "", "wanted an object"},
      {"3", "", "wanted an object"},
      {"{\"prompt\": \"a\", \"prompt\": \"b\"}", "", "occurs twice"},
      {"{\"prompt\": \"\xff\"}", "", "is no valid JSON"},
      {std::string(5000, '['), "", "nested deeper than 32 levels"},
      {"{}", "prompt", "prompt is missing"},
      {R"({"prompt": 5})", "prompt", "prompt is 5, wanted string or array"},
      {R"({"prompt": []})", "prompt", "empty list"},
      {R"({"prompt": [1, "a"]})", "prompt", "wanted token ids"},
      {R"({"prompt": [99999999]})", "prompt", "wanted token ids from 0"},
      {R"({"prompt": "a", "temperature": "1"})", "temperature", "wanted number"},
      {R"({"prompt": "a", "temperature": true})", "temperature", "wanted number"},
      {R"({"prompt": "a", "temperature": 3})", "temperature", "wanted 0 to 2"},
      {R"({"prompt": "a", "top_p": 0})", "top_p", "top_p is 0"},
      {R"({"prompt": "a", "max_tokens": 1.5})", "max_tokens", "wanted integer"},
      {R"({"prompt": "a", "max_tokens": -1})", "max_tokens", "max_tokens is -1"},
      {R"({"prompt": "a", "max_tokens": 0})", "max_tokens", "without echo"},
      {R"({"prompt": "a", "n": 1000000})", "n", "wanted 1 to 128"},
      {R"({"prompt": "a", "stop": ""})", "stop", "at least one character"},
      {R"({"prompt": "a", "stop": [1]})", "stop", "at least one character"},
      {R"({"prompt": "a", "logit_bias": {"x": 1}})", "logit_bias", "names the token 'x'"},
      {R"({"prompt": "a", "logit_bias": {"1": 101}})", "logit_bias", "no number from -100 to 100"},
      {R"({"prompt": "a", "best_of": 3})", "best_of", "does not support"},
      {R"({"prompt": "a", "suffix": "b"})", "suffix", "does not support"},
      {R"({"prompt": "a", "stream_options": {}})", "stream_options", "goes with stream"},
      {R"({"prompt": "a", "temperature": 1e999})", "", "is no valid JSON"},
  };
  for (const auto& [body, param, message] : cases) {
    SCOPED_TRACE(body.substr(0, 80));
    Client client(server_->port());
    const Reply reply = client.post("/v1/completions", body);
    EXPECT_EQ(reply.status, 400);
    EXPECT_THAT(reply.error(), HasSubstr(message));
    const Json answer = reply.json();
    const Json& named = answer["error"]["param"];
    EXPECT_EQ(named.is_null() ? "" : named.get<std::string>(), param);
  }
  const std::vector<std::array<std::string, 2>> chats = {
      {R"({"messages": []})", "messages is empty"},
      {R"({"messages": [3]})", "messages[0] is no object"},
      {R"({"messages": [{"role": "robot", "content": "x"}]})", "role is 'robot'"},
      {R"({"messages": [{"role": "user"}]})", "content is missing"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "type 'image_url'"},
      {R"({"messages": [{"role": "user", "content": "x"}], "tools": [{}]})",
       "tools[0].function is missing"},
      {R"({"messages": [{"role": "user", "content": "x"}], "prompt_logprobs": 1})",
       "prompt_logprobs"},
      {R"({"messages": [{"role": "user", "content": "x"}], "top_logprobs": 3})",
       "goes with logprobs"},
      {R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 0})", "wanted at least 1"},
      {R"({"messages": [{"role": "user", "content": "x"}], "model": "other"})",
       "'other' is not here"},
  };
  for (const auto& [body, message] : chats) {
    Client client(server_->port());
    EXPECT_THAT(client.post("/v1/chat/completions", body).error(), HasSubstr(message));
  }
  // A prompt that is too long: all numbers, and never a 500.
  const Reply longer = post("/v1/completions", {{"prompt", std::vector<int>(600, 5)}});
  EXPECT_EQ(longer.status, 400);
  EXPECT_THAT(longer.error(), HasSubstr("600 tokens, the context holds 512: at most 511"));
  // What clients send and what has no effect here.
  EXPECT_EQ(complete({{"prompt", "a"},
                      {"max_tokens", 1},
                      {"user", "me"},
                      {"metadata", Json::object()},
                      {"best_of", 1},
                      {"temperature", nullptr},
                      {"future", 1}})["choices"]
                .size(),
            1u);
}

TEST_F(ServerTest, PathsMethodsAndTypes) {
  Client client(server_->port());
  EXPECT_EQ(client.get("/nowhere").status, 404);
  EXPECT_EQ(client.get("/v1/embeddings").status, 404);
  const Reply wrong_method = client.get("/v1/completions");
  EXPECT_EQ(wrong_method.status, 405);
  EXPECT_THAT(wrong_method.head, HasSubstr("Allow: POST\r\n"));
  EXPECT_EQ(client.post("/v1/completions", "{}", "Content-Type: text/plain\r\n").status, 415);
  EXPECT_EQ(client.get("/health").status, 200);
  EXPECT_EQ(client.get("/v1/models").json()["data"][0]["id"], "tiny");
  EXPECT_EQ(client.get("/version").json()["version"], "0.0.test");
  const Json api = client.get("/openapi.json").json();
  for (const Endpoint& endpoint : endpoints())
    EXPECT_TRUE(api["paths"].contains(std::string(endpoint.path)));
  const Reply traced = client.get("/health", "X-Request-Id: abc-1\r\n");
  EXPECT_THAT(traced.head, HasSubstr("X-Request-Id: abc-1"));
}

// docs/server.md ends with the tables: BRAID_WRITE_DOCS=1 writes them anew.
TEST(ServerDocs, HoldTheTablesOfTheEndpoints) {
  const std::string path = BRAID_TEST_DATA "/../docs/server.md";
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const std::string mark = "<!-- endpoints -->\n";
  const size_t at = text.str().find(mark);
  ASSERT_NE(at, std::string::npos);
  const std::string want = text.str().substr(0, at + mark.size()) + "\n" + endpoint_tables();
  if (std::getenv("BRAID_WRITE_DOCS") != nullptr) std::ofstream(path) << want;
  EXPECT_EQ(text.str(), want) << "run this test with BRAID_WRITE_DOCS=1";
}

TEST_F(ServerTest, BrokenHttpIsAnsweredAndEndsTheConnection) {
  const auto status = [&](std::string_view bytes, bool half_close = false) {
    Client client(server_->port());
    client.send(bytes);
    if (half_close) client.half_close();
    const Reply reply = client.read();
    EXPECT_TRUE(client.ended());
    return reply.status;
  };
  EXPECT_EQ(status("GARBAGE\r\n\r\n"), 400);
  EXPECT_EQ(status("POST /v1/completions HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n"), 413);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nX: " + std::string(100000, 'x') + "\r\n\r\n"), 431);
  EXPECT_EQ(
      status(
          "POST /v1/completions HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef"),
      400);
  // What does not come in time.
  EXPECT_EQ(status("POST /v1/completions HTTP/1.1\r\nContent-Length: 50\r\n\r\n{"), 408);
  EXPECT_EQ(status("GET /health HT"), 408);
  Client silent(server_->port());
  silent.half_close();
  EXPECT_TRUE(silent.ended());
}

TEST_F(ServerTest, AClientThatGoesFreesItsPages) {
  for (int i = 0; i < 6; ++i) {
    Client client(server_->port());
    const std::string body =
        Json{{"prompt", "abc"}, {"ignore_eos", true}, {"stream", i % 2 == 0}}.dump();
    client.send(
        fmt::format("POST /v1/completions HTTP/1.1\r\nContent-Type: "
                    "application/json\r\nContent-Length: {}\r\n\r\n{}",
                    body.size(), body));
    if (i % 2 == 0) client.wait_for(200);
  }
  // All of them end long before their 500 tokens are made: the pages are free again.
  const auto running = [&] {
    Client client(server_->port());
    const std::string text = client.get("/metrics").body;
    const size_t at = text.find("\nbraid:num_requests_running{");
    return std::stod(text.substr(text.find('}', at) + 1));
  };
  double left = running();
  for (int i = 0; i < 600 && left > 0; ++i, left = running()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(left, 0);
  EXPECT_EQ(complete({{"prompt", "abc"},
                      {"max_tokens", 2},
                      {"ignore_eos", true}})["usage"]["completion_tokens"],
            2);
}

TEST_F(ServerTest, KeysAreAskedFor) {
  ServerConfig config = config_for(folder_->path().string());
  config.keys = {{"alice", "secret-1"}, {"bob", "secret-2"}};
  Server server(config, [](const std::string&) {});
  server.load();
  Client client(server.port());
  EXPECT_EQ(client.get("/v1/models").status, 401);
  EXPECT_EQ(client.get("/v1/models", "Authorization: Bearer secret-3\r\n").status, 401);
  EXPECT_EQ(client.get("/v1/models", "Authorization: Bearer secret-\r\n").status, 401);
  EXPECT_EQ(client.get("/v1/models", "Authorization: Bearer secret-2\r\n").status, 200);
  EXPECT_EQ(client.get("/v1/models", "X-Api-Key: secret-1\r\n").status, 200);
  EXPECT_EQ(client.get("/health").status, 200);
}

TEST_F(ServerTest, AFullQueueIs429AndDrainingIs503) {
  ServerConfig config = config_for(folder_->path().string());
  config.scheduler.max_running = 1;
  config.scheduler.max_waiting = 1;
  Server server(config, [](const std::string&) {});
  server.load();
  Client many(server.port()), late(server.port()), stream(server.port());
  const Reply full =
      many.post("/v1/completions", R"({"prompt": "abc", "ignore_eos": true, "n": 20})");
  EXPECT_EQ(full.status, 429);
  EXPECT_THAT(full.head, HasSubstr("Retry-After: 1"));
  EXPECT_THAT(full.error(), HasSubstr("the queue holds 1"));
  EXPECT_EQ(late.get("/health").status, 200);
  // The choices of the refused request leave the queue before the next step.
  for (int i = 0; i < 600; ++i) {
    if (late.post("/v1/completions", R"({"prompt": "abc", "max_tokens": 1})").status == 200) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const std::string body = R"({"prompt": "abc", "ignore_eos": true, "stream": true})";
  stream.send(
      fmt::format("POST /v1/completions HTTP/1.1\r\nContent-Type: "
                  "application/json\r\nContent-Length: {}\r\n\r\n{}",
                  body.size(), body));
  stream.wait_for(100);  // the answer runs
  EXPECT_EQ(server.drain(), Drained::whole);
  EXPECT_EQ(stream.read().events().back(), "[DONE]");
  EXPECT_EQ(late.get("/health").status, 503);
  EXPECT_EQ(late.get("/health/live").status, 200);
  EXPECT_EQ(late.post("/v1/completions", R"({"prompt": "abc"})").status, 503);
}

}  // namespace
}  // namespace braid::server
