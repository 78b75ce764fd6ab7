#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace braid::server {

// `braid serve` as a process of its own.
class ServedProcess {
 public:
  ServedProcess(const std::string& model, const std::string& log, std::vector<std::string> options)
      : log_(log) {
    std::vector<std::string> words = {"braid",  "serve", "-m",        model,
                                      "--port", "0",     "--threads", "1"};
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
    status();
  }

  int port() const { return port_; }
  void signal(int number) const { kill(pid_, number); }
  // Stops the thread that computed most, for good. False: this system lets nobody do so.
  bool stop_a_rank() {
    uint64_t most = 0;
    for (const auto& task :
         std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid_))) {
      std::ifstream file(task.path() / "schedstat");
      uint64_t ns = 0;
      file >> ns;
      if (ns < most) continue;
      most = ns;
      stopped_ = std::stoi(task.path().filename());
    }
    if (ptrace(PTRACE_SEIZE, stopped_, nullptr, nullptr) == 0 &&
        ptrace(PTRACE_INTERRUPT, stopped_, nullptr, nullptr) == 0)
      return true;
    stopped_ = -1;
    return false;
  }
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
    if (!ended_ && stopped_ > 0) waitpid(stopped_, nullptr, WNOHANG | __WALL);
    if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
    return ended_;
  }
  static void wait_for(const std::function<bool()>& done) {
    for (int i = 0; i < 1200 && !done(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }

  const std::string log_;
  pid_t pid_ = -1, stopped_ = -1;  // a thread
  int port_ = 0, status_ = 0;
  bool ended_ = false;
};

}  // namespace braid::server
