// What operators set and see: limits of connections and waits, logs, counts of steps.
#include <atomic>
#include <sstream>
#include <thread>

#include "braid/server/routes/answer_channel.h"
#include "server/fixture.h"
#include "server/served_process.h"

namespace braid::server {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string post_of(const Json& body) {
  const std::string text = body.dump();
  return fmt::format(
      "POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      text.size(), text);
}

TEST_F(ServerTest, ConnectionsAreBounded) {
  ServerConfig config = config_for(folder_->path().string());
  config.http.max_connections = 2;
  Server server(config, [](const std::string&) {});
  auto first = std::make_unique<Client>(server.port());
  Client second(server.port());
  EXPECT_EQ(first->get("/health/live").status, 200);
  EXPECT_EQ(second.get("/health/live").status, 200);
  EXPECT_TRUE(Client(server.port()).ended()) << "no place is left";
  EXPECT_EQ(second.get("/health/live").status, 200);
  first.reset();
  int status = 0;
  for (int i = 0; i < 600 && status != 200; ++i) {
    try {
      Client later(server.port());
      status = later.get("/health/live").status;
    } catch (const std::exception&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  EXPECT_EQ(status, 200) << "the first one's place is free again";
}

TEST_F(ServerTest, SilentConnectionsEnd) {
  ServerConfig config = config_for(folder_->path().string());
  config.http.idle_seconds = 0.2;
  Server server(config, [](const std::string&) {});
  Client silent(server.port()), asking(server.port());
  EXPECT_EQ(asking.get("/health/live").status, 200);
  EXPECT_TRUE(silent.ended());
  EXPECT_TRUE(asking.ended());
}

// A queue with a time limit, and a stream that a proxy must not close meanwhile.
TEST_F(ServerTest, AWaitInTheQueueEndsWith503AndCommentsKeepStreamsOpen) {
  ServerConfig config = config_for(folder_->path().string());
  config.scheduler.max_running = 1;
  config.scheduler.queue_timeout_s = 0.5;
  std::atomic<bool> held{true};
  config.engine.on_step = [&](const Runner&) {
    while (held) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  Server server(config, [](const std::string&) {});
  server.load();
  Client stream(server.port()), waiting(server.port());
  stream.send(
      post_of({{"prompt", "a"}, {"max_tokens", 2}, {"stream", true}, {"ignore_eos", true}}));
  stream.wait_for(1);  // the step is held: a comment began the stream
  waiting.send(post_of({{"prompt", "b"}, {"max_tokens", 2}}));
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  held = false;
  const Reply refused = waiting.read();
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.error(), HasSubstr("waited for 0.5 s, which is the queue's time limit"));
  const Reply reply = stream.read();
  EXPECT_THAT(reply.body, HasSubstr(": wait\n\n"));
  EXPECT_EQ(reply.events().back(), "[DONE]");
}

// A client that reads nothing costs a bounded amount of memory.
TEST(AnswerChannel, HoldsABoundedTextAndAlwaysTheEnd) {
  int woken = 0;
  AnswerChannel channel(1000, [&] { ++woken; });
  int pushed = 0;
  while (pushed < 1000 && channel.push({.text = std::string(36, 'x')})) ++pushed;
  EXPECT_EQ(pushed, 10) << "100 bytes each";
  EXPECT_TRUE(channel.overflown());
  EXPECT_TRUE(channel.push({.end = AnswerEnd{}}));
  EXPECT_EQ(woken, 11);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(channel.pop()->end);
  EXPECT_TRUE(channel.pop()->end);
  EXPECT_FALSE(channel.pop());
}

TEST_F(ServerTest, StepsAreCountedByTheirTokens) {
  complete({{"prompt", std::string(100, 'q')}, {"max_tokens", 5}, {"ignore_eos", true}});
  std::string text;
  const auto value = [&](const std::string& line) {
    const size_t at = text.find("\nbraid:" + line);
    EXPECT_NE(at, std::string::npos) << line;
    return at == std::string::npos ? 0 : std::stod(text.substr(text.find('}', at) + 1));
  };
  double tokens = -1, sum = 0;
  for (int i = 0; i < 600 && tokens != sum; ++i) {  // the last step is counted behind its answer
    Client client(server_->port());
    text = client.get("/metrics").body;
    tokens = value("prompt_tokens_total{") + value("generation_tokens_total{");
    sum = value("iteration_tokens_total_sum{");
  }
  EXPECT_EQ(sum, tokens);
  const double steps = value("steps_total{");
  EXPECT_GE(steps, 5);
  EXPECT_EQ(value("iteration_tokens_total_count{"), steps);
  EXPECT_GE(value("iteration_tokens_total_bucket{model_name=\"tiny\",le=\"1\"}"), 4);
  EXPECT_EQ(value("iteration_tokens_total_bucket{model_name=\"tiny\",le=\"+Inf\"}"), steps);
  EXPECT_EQ(value("num_requests_waiting_by_reason{"), 0);
  EXPECT_THAT(text, HasSubstr("block_size=\"64\""));
}

TEST_F(ServerTest, LogsNameARequestAndNoPrompt) {
  for (const std::string format : {"json", "text"}) {
    ServedProcess server(folder_->path().string(), (folder_->path() / "serve_log").string(),
                         {"--log", format});
    ASSERT_GT(server.port(), 0) << server.said();
    Client client(server.port());
    EXPECT_EQ(client
                  .post("/v1/completions", R"({"prompt": "secret words", "max_tokens": 2})",
                        "Content-Type: application/json\r\nX-Request-Id: mine-7\r\n"
                        "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n")
                  .status,
              200);
    server.signal(SIGTERM);
    EXPECT_EQ(server.status(), 0);
    const std::string said = server.said();
    EXPECT_THAT(said, Not(HasSubstr("secret")));
    EXPECT_THAT(said, HasSubstr("mine-7"));
    if (format == "text") continue;
    std::istringstream lines(said);
    Json entry;
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("{")) entry = Json::parse(line);
    EXPECT_EQ(entry["path"], "/v1/completions");
    EXPECT_EQ(entry["status"], 200);
    EXPECT_EQ(entry["request_id"], "mine-7");
    EXPECT_EQ(entry["traceparent"], "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  }
}

}  // namespace
}  // namespace braid::server
