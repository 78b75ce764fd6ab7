// How a server ends: under load, in time, with an end for every stream.
#include <spawn.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>

#include "server/fixture.h"

extern char** environ;

namespace braid::server {
namespace {

using testing::HasSubstr;

// `braid serve` as a process of its own.
class ServedProcess {
 public:
  ServedProcess(const std::string& model, const std::string& log, std::vector<std::string> options)
      : log_(log) {
    std::vector<std::string> words = {"braid", "serve", "-m",   model,       "--port",
                                      "0",     "--log", "none", "--threads", "1"};
    words.insert(words.end(), options.begin(), options.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, log.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    EXPECT_EQ(
        posix_spawn(&pid_, BRAID_BIN_DIR "/braid", &files, nullptr, arguments.data(), environ), 0);
    posix_spawn_file_actions_destroy(&files);
    wait_for([&] { return said().find("braid: ready\n") != std::string::npos; });
    const std::string mark = "listening at http://127.0.0.1:";
    const size_t at = said().find(mark);
    if (at != std::string::npos) port_ = std::atoi(said().c_str() + at + mark.size());
  }
  ~ServedProcess() {
    if (!ended()) kill(pid_, SIGKILL);
    if (!ended_) waitpid(pid_, nullptr, 0);
  }

  int port() const { return port_; }
  void signal(int number) const { kill(pid_, number); }
  // The exit status; -1: it did not end within a minute, or by a signal.
  int status() {
    wait_for([&] { return ended(); });
    return ended_ && WIFEXITED(status_) ? WEXITSTATUS(status_) : -1;
  }
  std::string said() const {
    std::stringstream text;
    text << std::ifstream(log_).rdbuf();
    return text.str();
  }

 private:
  bool ended() {
    if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
    return ended_;
  }
  static void wait_for(const std::function<bool()>& done) {
    for (int i = 0; i < 1200 && !done(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }

  const std::string log_;
  pid_t pid_ = -1;
  int port_ = 0, status_ = 0;
  bool ended_ = false;
};

class EndingTest : public ServerTest {
 protected:
  struct Counts {
    std::atomic<int> whole{0}, failed{0}, refused{0}, without_end{0};
  };

  // 24 clients ask again and again until the server is gone; every second answer is a stream.
  static void end_under_load(const std::vector<std::string>& options, const Json& body,
                             Counts& counts) {
    const std::string log = (folder_->path() / "serve_log").string();
    ServedProcess server(folder_->path().string(), log, options);
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
    server.signal(SIGTERM);
    EXPECT_EQ(server.status(), 0) << server.said();
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
