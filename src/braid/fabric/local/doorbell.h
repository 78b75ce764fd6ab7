#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

#include "braid/backend/cpu/futex.h"
#include "braid/backend/cpu/wake_counter.h"
#include "braid/backend/cpu/yield.h"

namespace braid::fabric {

using Clock = std::chrono::steady_clock;

// The threads of a rank wait here for changes in memory that others write. The writer stores with
// sequential consistency and rings; ringing costs a load while nobody sleeps. A doorbell may lie
// in memory that processes share.
class alignas(64) Doorbell {
 public:
  void ring() {
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
    bell_.fetch_add(1, std::memory_order_seq_cst);
    cpu::futex_wake_all(bell_, cpu::FutexScope::machine);
  }

  // Returns true once ready() is, false when `deadline` has passed. ready() reads with sequential
  // consistency what a ringing writer has stored. Spins and yields as the policy says, then sleeps.
  template <class Ready>
  bool wait(const cpu::WaitPolicy& policy, Clock::time_point deadline, Ready&& ready);

 private:
  std::atomic<int> sleepers_{0};
  std::atomic<uint32_t> bell_{0};
};

inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __builtin_arm_yield();
#endif
}

template <class Ready>
bool Doorbell::wait(const cpu::WaitPolicy& policy, Clock::time_point deadline, Ready&& ready) {
  constexpr int kChecksPerClock = 32;
  constexpr std::chrono::microseconds kLinger{15};
  const Clock::time_point start = Clock::now();
  do {
    for (int i = 0; i < kChecksPerClock; ++i) {
      if (ready()) return true;
      spin_pause();
    }
  } while (Clock::now() - start < policy.spin);
  for (int i = 0, yields = cpu::yields_now(policy.yields); i < yields; ++i) {
    if (ready()) return true;
    if (!cpu::yield_core()) break;
  }

  bool done = false;
  while (!done) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = bell_.load(std::memory_order_acquire);
    // Either the writer sees the sleeper, or the sleeper sees the writer's store.
    done = ready();
    const auto left = deadline - Clock::now();
    if (!done && left > Clock::duration::zero()) {
      cpu::futex_sleep(bell_, seen, left, cpu::FutexScope::machine);
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    // Rung early, or for another reason: the awaited value is likely near.
    const Clock::time_point sleep_again = std::min(Clock::now() + kLinger, deadline);
    while (!(done = done || ready()) && Clock::now() < sleep_again) spin_pause();
    if (!done && Clock::now() >= deadline) return false;
  }
  return true;
}

}  // namespace braid::fabric
