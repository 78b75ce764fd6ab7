#pragma once

#include <condition_variable>
#include <mutex>
#include <vector>

namespace braid {

// Hands values from producing threads to a single taker, who takes all at once; `capacity` at most
// wait. A closed queue hands out its rest and then nothing.
template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // Waits for room. False, and the value is dropped, once the queue is closed.
  bool push(T value) {
    const bool added = add(std::move(value));
    if (added) wake();
    return added;
  }
  // As push(), but the taker may sleep on until wake().
  bool add(T value) {
    std::unique_lock lock(mutex_);
    if (values_.size() >= capacity_) wake();
    room_.wait(lock, [&] { return values_.size() < capacity_ || closed_; });
    if (!closed_) values_.push_back(std::move(value));
    return !closed_;
  }
  void wake() { filled_.notify_one(); }

  // Waits for values and moves all into `taken`, whose old values are dropped and whose memory is
  // used again. False once the queue is closed and empty.
  bool take(std::vector<T>& taken) {
    taken.clear();
    {
      std::unique_lock lock(mutex_);
      filled_.wait(lock, [&] { return !values_.empty() || closed_; });
      values_.swap(taken);
    }
    room_.notify_all();
    return !taken.empty();
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    room_.notify_all();
    filled_.notify_all();
  }

 private:
  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable room_, filled_;
  std::vector<T> values_;
  bool closed_ = false;
};

}  // namespace braid
