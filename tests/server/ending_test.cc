// How a server ends: under load, in time, with an end for every stream.
#include <atomic>
#include <chrono>
#include <thread>

#include "server/fixture.h"
#include "server/served_process.h"

namespace braid::server {
namespace {

using testing::HasSubstr;

class EndingTest : public ServerTest {
 protected:
  struct Counts {
    std::atomic<int> whole{0}, failed{0}, refused{0}, without_end{0};
  };

  // 24 clients ask again and again until the server is gone; every second answer is a stream.
  // `end` makes the server end.
  static void end_under_load(
      const std::vector<std::string>& options, const Json& body, Counts& counts,
      const std::function<void(ServedProcess&)>& end = [](ServedProcess& server) {
        server.signal(SIGTERM);
        EXPECT_EQ(server.status(), 0) << server.said();
      }) {
    const std::string log = (folder_->path() / "serve_log").string();
    std::vector<std::string> words = {"--log", "none"};
    words.insert(words.end(), options.begin(), options.end());
    ServedProcess server(folder_->path().string(), log, words);
    ASSERT_GT(server.port(), 0) << server.said();
    std::atomic<int> begun{0};
    std::vector<std::thread> clients;
    for (int i = 0; i < 24; ++i) {
      clients.emplace_back([&, i] {
        Json mine = body;
        mine["stream"] = i % 2 == 0;
        while (ask(server.port(), mine, i % 2 == 0, begun, counts)) {
        }
      });
    }
    for (int i = 0; i < 1200 && begun < 12; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    end(server);
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(counts.without_end, 0);
  }

 private:
  // False once the server takes nothing.
  static bool ask(int port, const Json& body, bool stream, std::atomic<int>& begun,
                  Counts& counts) {
    try {
      Client client(port);
      const std::string text = body.dump();
      client.send(
          fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
                      "application/json\r\nContent-Length: {}\r\n\r\n{}",
                      text.size(), text));
      if (stream) {
        client.wait_for(250);  // an event came
        ++begun;
      }
      const Reply reply = client.read();
      if (reply.status == 503) {
        ++counts.refused;
        return false;
      }
      EXPECT_EQ(reply.status, 200) << reply.body;
      if (!stream) {
        ++counts.whole;
        return true;
      }
      const std::vector<std::string> events = reply.events();
      if (events.empty() || events.back() != "[DONE]") {
        ++counts.without_end;
        return false;
      }
      const Json last = Json::parse(events.at(events.size() - 2));
      ++(last.contains("error") ? counts.failed : counts.whole);
      return true;
    } catch (const std::exception& error) {
      // A connection that was refused, or closed before a reply began, is no stream.
      const std::string what = error.what();
      if (what != "cannot connect" && what != "the connection ended before a reply: ")
        ++counts.without_end;
      return false;
    }
  }
};

TEST_F(EndingTest, OnSigtermRunningAnswersEndAndNewOnesAreRefused) {
  Counts counts;
  end_under_load({"--max-running", "8"},
                 {{"prompt", "abc"}, {"max_tokens", 60}, {"ignore_eos", true}}, counts);
  EXPECT_GE(counts.whole, 12);
  EXPECT_EQ(counts.failed, 0) << "an answer was cut";
}

TEST_F(EndingTest, AnswersThatTakeTooLongToDrainEndWithAnError) {
  Counts counts;
  end_under_load({"--max-running", "8", "--drain-timeout", "0.1", "--max-model-len", "1024"},
                 {{"prompt", "abc"}, {"n", 32}, {"ignore_eos", true}}, counts);
  // A stream that ended before the signal is another one's turn, which may be refused.
  EXPECT_GT(counts.failed, 0);
  EXPECT_GT(counts.refused, 0) << "those who wait for a whole answer get 503";
}

// A step that hangs ends no answer: the server does, and says so.
TEST_F(EndingTest, AServerWhoseStepHangsEndsEveryStream) {
  const Json body = {{"prompt", "abc"}, {"n", 32}, {"ignore_eos", true}};
  for (const bool by_signal : {true, false}) {
    SCOPED_TRACE(by_signal);
    Counts counts;
    bool stopped = false;
    end_under_load({"--max-running", "8", "--max-model-len", "1024", "--drain-timeout", "0.1",
                    "--hang-timeout", by_signal ? "3600" : "0.5"},
                   body, counts, [&](ServedProcess& server) {
                     stopped = server.stop_a_rank();
                     if (!stopped || by_signal) server.signal(SIGTERM);
                     EXPECT_EQ(server.status(), stopped ? 1 : 0) << server.said();
                     if (!stopped) return;
                     EXPECT_THAT(server.said(), HasSubstr("a step does not end"));
                     EXPECT_EQ(server.said().find("a step has not ended for") == std::string::npos,
                               by_signal);
                   });
    if (!stopped) GTEST_SKIP() << "no thread can be stopped here";
    EXPECT_GT(counts.failed, 0);
    EXPECT_GT(counts.refused, 0);
  }
}

TEST_F(EndingTest, AnswersOfAStepThatHangsEndWithAnError) {
  for (const bool by_signal : {true, false}) {
    SCOPED_TRACE(by_signal);
    std::atomic<bool> hangs{true};
    std::atomic<int> steps{0};
    ServerConfig config = config_for(folder_->path().string());
    config.drain_seconds = by_signal ? 0.1 : 3600;
    config.hang_seconds = by_signal ? 3600 : 0.5;
    config.engine.on_step = [&](const Runner&) {
      while (++steps > 40 && hangs) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    };
    Server server(config, [](const std::string&) {});
    server.load();
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 6; ++i) {
      clients.push_back(std::make_unique<Client>(server.port()));
      const std::string body =
          Json{{"prompt", "abc"}, {"ignore_eos", true}, {"stream", i % 2 == 0}}.dump();
      clients.back()->send(
          fmt::format("POST /v1/completions HTTP/1.1\r\nContent-Type: "
                      "application/json\r\nContent-Length: {}\r\n\r\n{}",
                      body.size(), body));
    }
    for (int i = 0; i < 1200 && (steps <= 40 || (!by_signal && server.error().empty())); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(server.error().empty(), by_signal);
    EXPECT_EQ(server.drain(), Drained::hung);
    int begun = 0;
    for (const auto& client : clients) {
      const Reply reply = client->read();
      if (reply.status == 200) {
        ++begun;
        const std::vector<std::string> events = reply.events();
        EXPECT_EQ(events.back(), "[DONE]");
        EXPECT_THAT(events.at(events.size() - 2), HasSubstr("a step of the engine hangs"));
      } else {
        EXPECT_EQ(reply.status, 503);
        EXPECT_THAT(reply.error(), HasSubstr("a step of the engine hangs"));
      }
    }
    EXPECT_GE(begun, 1);
    hangs = false;
  }
}

TEST_F(EndingTest, ASecondSignalEndsAtOnce) {
  ServedProcess server(folder_->path().string(), (folder_->path() / "serve_log").string(),
                       {"--max-running", "8", "--max-model-len", "1024"});
  ASSERT_GT(server.port(), 0) << server.said();
  Client client(server.port());
  const std::string body =
      Json{{"prompt", "abc"}, {"n", 128}, {"ignore_eos", true}, {"stream", true}}.dump();
  client.send(
      fmt::format("POST /v1/completions HTTP/1.1\r\nContent-Type: "
                  "application/json\r\nContent-Length: {}\r\n\r\n{}",
                  body.size(), body));
  client.wait_for(250);
  server.signal(SIGTERM);
  for (int i = 0; i < 6000 && server.said().find("braid: ending") == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  server.signal(SIGTERM);
  EXPECT_EQ(server.status(), 1) << "all answers were waited for";
}

// The engine and its grammars end after the connections that they answer.
TEST_F(EndingTest, AServerThatIsDestroyedLeavesItsAnswers) {
  for (int round = 0; round < 4; ++round) {
    auto server =
        std::make_unique<Server>(config_for(folder_->path().string()), [](const std::string&) {});
    server->load();
    std::vector<std::unique_ptr<Client>> clients;
    const std::string body =
        Json{{"prompt", "abc"}, {"n", 16}, {"ignore_eos", true}, {"stream", round % 2 == 0}}.dump();
    for (int i = 0; i < 8; ++i) {
      clients.push_back(std::make_unique<Client>(server->port()));
      clients.back()->send(
          fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
                      "application/json\r\nContent-Length: {}\r\n\r\n{}",
                      body.size(), body));
    }
    if (round % 2 == 0) clients[0]->wait_for(300);
    server.reset();
    for (const auto& client : clients) EXPECT_TRUE(client->ended());
  }
}

// Health is judged by the engine's clock: a step that does not end is seen, and its end, too.
TEST_F(EndingTest, AStepThatHangsTurnsHealthTo503) {
  std::atomic<bool> hangs{true};
  ServerConfig config = config_for(folder_->path().string());
  config.hang_seconds = 2;
  config.engine.on_step = [&](const Runner&) {
    while (hangs) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  Server server(config, [](const std::string&) {});
  server.load();
  int status = 0;
  std::thread asking([&] {
    Client client(server.port());
    status = client.post("/v1/completions", R"({"prompt": "a", "max_tokens": 1})").status;
  });
  const auto becomes = [&](const char* path, int wanted) {
    Reply reply;
    for (int i = 0; i < 1200 && reply.status != wanted; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      Client client(server.port());
      reply = client.get(path);
    }
    return reply;
  };
  EXPECT_THAT(becomes("/health/live", 503).error(), HasSubstr("has ended no step for"));
  EXPECT_EQ(becomes("/health", 503).status, 503);
  hangs = false;
  asking.join();
  EXPECT_EQ(status, 200);
  EXPECT_EQ(becomes("/health/live", 200).status, 200);
  EXPECT_EQ(becomes("/health", 200).status, 200);
}

}  // namespace
}  // namespace braid::server
