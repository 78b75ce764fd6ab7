#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace braid {

// Threads for work beside a loop's own thread; they are made with the first work.
class Workers {
 public:
  // 0 threads: the caller does everything at once.
  explicit Workers(int threads) : threads_(threads) {}
  // Work that has not begun is dropped.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Work that throws ends the program.
  void push(std::function<void()> work);
  // Calls fn(0) to fn(n - 1), also on the caller's thread, and returns when all have returned.
  // Rethrows the first exception.
  void each(size_t n, const std::function<void(size_t)>& fn);

 private:
  void work();

  const int threads_;
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<std::function<void()>> queue_;
  bool closed_ = false;
  std::vector<std::thread> running_;
};

}  // namespace braid
