#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace braid::job {

// A thread that watches a job's processes: gives signs of life, misses others' signs, and ends this
// process if needed. Process 0 watches all others; the others watch process 0, which tells them.
// The kernel reports ended processes on this host.
class Monitor {
 public:
  struct Config {
    int process = 0;
    int processes = 1;
    std::vector<int> pids;  // [processes], 0: on another host, or without common numbers
    std::chrono::milliseconds timeout;  // of silence
    std::chrono::milliseconds grace;    // from the job's error to the end of this process
    std::function<void(int to)> give_sign;
    std::function<void(int process, const std::string& why)> on_failure;
    std::function<bool()> failed;   // the job
    std::function<void()> end;      // this process: does not return
    std::function<void()> on_term;  // SIGTERM came
  };

  // Blocks SIGTERM in this thread and in all later threads: the monitor gets the signal.
  static void block_term();

  explicit Monitor(Config config);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // A message from the process came. Any thread.
  void saw(int process);
  // The connection broke. A moment later it is a failure, unless an error was told before.
  void lost(int process, const std::string& why);
  // The process has announced a good end.
  void leaves(int process);

 private:
  using Clock = std::chrono::steady_clock;
  struct Watch {
    std::atomic<Clock::time_point> seen;
    bool leaves = false;
    std::optional<Clock::time_point> lost_at;
    std::string why;
    int ended = -1;  // readable once the process has ended; -1: not of this host
  };
  void see_ends();
  void run();
  bool watches(int process) const;

  const Config config_;
  const std::chrono::milliseconds period_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::vector<Watch> watches_;  // [processes]
  int term_ = -1;               // readable once SIGTERM came
  std::thread thread_;
};

}  // namespace braid::job
