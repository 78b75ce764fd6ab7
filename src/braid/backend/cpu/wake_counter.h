#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace braid::cpu {

// How long a thread burns its core before it sleeps in the kernel. Spinning answers in about 0.1 us
// and a sleeper in 5 to 50 us, but on an oversubscribed machine the spinner may hold the very core
// that the other thread needs.
struct SpinPolicy {
  std::chrono::nanoseconds spin{0};  // with pause, then
  int yields = 0;                    // times sched_yield, then sleep

  static SpinPolicy dedicated(std::chrono::nanoseconds spin) { return {spin, 0}; }
  static SpinPolicy oversubscribed() { return {std::chrono::nanoseconds(500), 4}; }
};

// A counter that threads wait on. What happened before advance() is visible after wait_past().
class WakeCounter {
 public:
  uint32_t load() const { return value_.load(std::memory_order_acquire); }

  // Adds one and wakes every sleeper; costs a system call only if there is one.
  void advance();

  // Returns true once the value differs from `seen`, false if `deadline` passed first.
  bool wait_past(uint32_t seen, const SpinPolicy& policy, std::chrono::nanoseconds deadline);

 private:
  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace braid::cpu
