#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace braid::cpu {

// A waiting thread's actions, in this order: spin with pause (answers in about 0.1 us, but may hold
// the very core that the awaited thread needs), yield (about 0.3 us each on a free core, and hands
// a contended core over), sleep in the kernel (5 to 50 us to wake).
struct WaitPolicy {
  std::chrono::nanoseconds spin{0};
  int yields = 0;
};

// A counter for waiting threads. Writes before advance() are visible after wait_past().
class WakeCounter {
 public:
  uint32_t load() const { return value_.load(std::memory_order_acquire); }

  // Adds 1 and wakes every sleeper; without sleepers no system call is made.
  void advance();

  // Returns true once the value differs from `seen`, false if `deadline` passed first.
  bool wait_past(uint32_t seen, const WaitPolicy& policy, std::chrono::nanoseconds deadline);

 private:
  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace braid::cpu
