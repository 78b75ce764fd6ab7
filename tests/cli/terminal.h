#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

namespace braid::golden {

// The program in a terminal of its own: what a person types and sees.
class Terminal {
 public:
  explicit Terminal(const std::vector<std::string>& arguments) {
    const winsize size = {.ws_row = 50, .ws_col = 200, .ws_xpixel = 0, .ws_ypixel = 0};
    pid_ = forkpty(&fd_, nullptr, nullptr, &size);
    if (pid_ != 0) return;
    setenv("TERM", "xterm", 1);
    const std::string program = BRAID_BIN_DIR "/braid";
    std::vector<char*> words = {const_cast<char*>(program.c_str())};
    for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execv(words[0], words.data());
    _exit(127);
  }
  ~Terminal() {
    if (!ended_) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    close(fd_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Keys for the line that is being edited: once the program reads key by key.
  void type(const std::string& keys) {
    termios mode{};
    const auto end = Clock::now() + kPatience;
    while (tcgetattr(fd_, &mode) == 0 && (mode.c_lflag & ICANON) != 0 && Clock::now() < end) more();
    press(keys);
  }
  // Keys at once, whatever the program does.
  void press(const std::string& keys) {
    ASSERT_EQ(write(fd_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  // What is shown from here on, up to and with `text`.
  std::string see(const std::string& text) {
    std::string shown;
    for (const auto end = Clock::now() + kPatience; Clock::now() < end;) {
      if (const size_t at = unread_.find(text); at != std::string::npos) {
        shown = unread_.substr(0, at + text.size());
        unread_.erase(0, at + text.size());
        return shown;
      }
      if (!more()) break;
    }
    ADD_FAILURE() << "not seen: " << text << "\nshown: " << unread_;
    return {};
  }
  // The exit status; -1: it did not end, or by a signal.
  int status() {
    const auto end = Clock::now() + kPatience;
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      if (Clock::now() > end) return -1;
      more();
    }
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPatience{60};  // for a machine under load

  bool more() {
    pollfd wait = {.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, 20) <= 0) return true;
    char buffer[4096];
    const ssize_t n = ::read(fd_, buffer, sizeof(buffer));
    if (n <= 0) return false;
    unread_.append(buffer, static_cast<size_t>(n));
    return true;
  }

  int fd_ = -1;
  pid_t pid_ = -1;
  bool ended_ = false;
  std::string unread_;
};

}  // namespace braid::golden
