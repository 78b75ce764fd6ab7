#pragma once

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <set>

namespace braid::golden {

inline std::set<pid_t> threads_of_this_process() {
  std::set<pid_t> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    threads.insert(std::atoi(entry.path().filename().c_str()));
  }
  return threads;
}

// Stops a thread of this process for a while, wherever its code is: a signal's handler sleeps.
class LateThread {
 public:
  explicit LateThread(std::chrono::milliseconds late) {
    late_ms_ = late.count();
    stops_ = 0;
    struct sigaction action = {};
    action.sa_handler = [](int) {
      const int error = errno;
      const timespec time{late_ms_ / 1000, late_ms_ % 1000 * 1'000'000};
      nanosleep(&time, nullptr);
      errno = error;
      ++stops_;
    };
    sigaction(SIGUSR2, &action, &before_);
  }
  ~LateThread() { sigaction(SIGUSR2, &before_, nullptr); }
  LateThread(const LateThread&) = delete;
  LateThread& operator=(const LateThread&) = delete;

  void stop(pid_t thread) const { syscall(SYS_tgkill, getpid(), thread, SIGUSR2); }
  int stops() const { return stops_; }  // that have ended

 private:
  static inline long late_ms_ = 0;
  static inline std::atomic<int> stops_ = 0;
  struct sigaction before_ = {};
};

}  // namespace braid::golden
