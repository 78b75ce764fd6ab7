#include "braid/engine/requests/workers.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>

namespace braid {
namespace {

// The calls of a single each(). A late worker finds none left.
struct Calls {
  Calls(size_t count, const std::function<void(size_t)>& f) : n(count), fn(f), left(count) {}

  void take() {
    for (size_t i = next++; i < n; i = next++) {
      std::exception_ptr thrown;
      try {
        fn(i);
      } catch (...) {
        thrown = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      if (thrown && !error) error = thrown;
      if (--left == 0) done.notify_all();
    }
  }

  const size_t n;
  const std::function<void(size_t)>& fn;  // gone once none is left
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::condition_variable done;
  size_t left;
  std::exception_ptr error;
};

}  // namespace

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  filled_.notify_all();
  for (std::thread& thread : running_) thread.join();
}

void Workers::push(std::function<void()> work) {
  if (threads_ == 0) return work();
  {
    const std::lock_guard lock(mutex_);
    while (std::ssize(running_) < threads_) running_.emplace_back([this] { this->work(); });
    queue_.push_back(std::move(work));
  }
  filled_.notify_one();
}

void Workers::each(size_t n, const std::function<void(size_t)>& fn) {
  const auto calls = std::make_shared<Calls>(n, fn);
  const auto helpers = std::min<size_t>(static_cast<size_t>(threads_), n - std::min<size_t>(n, 1));
  for (size_t i = 0; i < helpers; ++i) push([calls] { calls->take(); });
  calls->take();
  std::unique_lock lock(calls->mutex);
  calls->done.wait(lock, [&] { return calls->left == 0; });
  if (calls->error) std::rethrow_exception(calls->error);
}

void Workers::work() {
  for (;;) {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return closed_ || !queue_.empty(); });
    if (closed_) return;
    const std::function<void()> next = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    next();
  }
}

}  // namespace braid
