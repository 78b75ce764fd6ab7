#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "braid/backend/cpu/wake_counter.h"
#include "braid/base/math.h"

namespace braid::cpu {

// A sense-counting barrier for a team's threads. Waits as its policy says, so an oversubscribed
// machine makes progress. Abort-safe: after abort() every wait throws Error(kAborted). A wait
// longer than `deadline` aborts the barrier and throws Error(kDeadline).
class Barrier {
 public:
  static constexpr std::chrono::seconds kDeadline{600};

  Barrier(int count, WaitPolicy policy, std::chrono::nanoseconds deadline = kDeadline)
      : count_(count), policy_(policy), deadline_(deadline) {}

  void wait();
  void abort();
  // Makes an aborted barrier usable again; no thread may be inside wait().
  void reset();

 private:
  const int count_;
  const WaitPolicy policy_;
  const std::chrono::nanoseconds deadline_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) WakeCounter phase_;
  std::atomic<bool> aborted_{false};
};

// A CPU kernel's view of its threads. Every thread of the team calls the kernel with the same
// arguments (SPMD): each thread takes a share of the work by `index`, and meets the others at
// barrier() between dependent phases.
struct Team {
  int index = 0;
  int count = 1;
  Barrier* barrier_ = nullptr;  // null when count == 1

  void barrier() const {
    if (barrier_) barrier_->wait();
  }
  // This thread's share of n units.
  Range share(int64_t n) const { return even_part(n, count, index); }
};

}  // namespace braid::cpu
