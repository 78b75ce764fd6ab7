#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "braid/backend/cpu/team.h"

namespace braid::cpu {

// Threads that together run one function at a time. Workers stay awake for some tens of
// microseconds between runs and then sleep: an idle pool costs nothing. A run on a warm pool costs
// about two cache-line round trips, on a sleeping one a wake-up by the kernel.
class ThreadPool {
 public:
  // 1 <= threads <= kMaxThreads, including the caller of run(). `total_threads` counts the threads
  // of all pools at work at once (0: only this pool's): if they outnumber the process' usable
  // cores, waiting threads give up their core at once.
  explicit ThreadPool(int threads, int total_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  static constexpr int kMaxThreads = 1024;

  int threads() const { return count_; }

  // Calls fn(const Team&) on every thread, on the caller as index 0; returns when all have
  // returned. If any throws, the team's barrier aborts (the others get Error(kAborted) from it) and
  // the first exception is rethrown here; the pool stays usable. One run at a time, not from inside
  // a run. Allocates nothing.
  template <class F>
  void run(F&& fn) {
    using Fn = std::remove_reference_t<F>;
    run_erased([](void* f, const Team& team) { (*static_cast<Fn*>(f))(team); },
               const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using Call = void (*)(void* fn, const Team& team);

  void run_erased(Call call, void* fn);
  void run_part(int index);
  void work(int index);

  const int count_;
  const WaitPolicy idle_policy_;  // between runs
  const WaitPolicy run_policy_;   // inside a run
  Barrier barrier_;
  Call call_ = nullptr;
  void* fn_ = nullptr;
  std::atomic<bool> running_{false};
  bool stop_ = false;
  std::mutex error_mutex_;
  std::exception_ptr error_;
  alignas(64) WakeCounter started_;          // one more for each run
  alignas(64) WakeCounter finished_;         // one more when the last worker is done
  alignas(64) std::atomic<int> pending_{0};  // workers still in the current run
  std::vector<std::thread> workers_;
};

// Cores that this process can keep busy: the affinity mask's cores, at most as many as the control
// groups' CPU quota pays for (rounded up), at least 1.
int usable_cores();

}  // namespace braid::cpu
