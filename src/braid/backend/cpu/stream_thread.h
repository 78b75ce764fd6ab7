#pragma once

#include <exception>
#include <thread>

#include "braid/backend/cpu/wake_counter.h"

namespace braid::cpu {

// A stream's thread: runs a single function at a time, beside its caller.
class StreamThread {
 public:
  explicit StreamThread(const WaitPolicy& policy);
  ~StreamThread();
  StreamThread(const StreamThread&) = delete;
  StreamThread& operator=(const StreamThread&) = delete;

  // Begins fn(arg) and returns. Not before the last one was joined. Allocates nothing.
  void start(void (*fn)(void* arg), void* arg);
  // Returns when the function has ended; rethrows its exception.
  void join();

 private:
  void work();

  const WaitPolicy policy_;
  void (*fn_)(void*) = nullptr;
  void* arg_ = nullptr;
  bool stop_ = false;
  uint32_t joined_ = 0;
  std::exception_ptr error_;
  WakeCounter started_;
  WakeCounter finished_;
  std::thread thread_;
};

}  // namespace braid::cpu
