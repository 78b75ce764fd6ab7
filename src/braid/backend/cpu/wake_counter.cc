#include "braid/backend/cpu/wake_counter.h"

#include "braid/backend/cpu/futex.h"
#include "braid/backend/cpu/yield.h"

namespace braid::cpu {
namespace {

using Clock = std::chrono::steady_clock;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __builtin_arm_yield();
#endif
}

}  // namespace

void WakeCounter::advance() {
  // Sequentially consistent against the sleeper's increment of sleepers_ and check of value_:
  // either the sleeper sees the new value or the sleeper is seen here.
  value_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) futex_wake_all(value_, FutexScope::process);
}

bool WakeCounter::wait_past(uint32_t seen, const WaitPolicy& policy,
                            std::chrono::nanoseconds deadline) {
  constexpr int kPausesPerClock = 16;
  if (load() != seen) return true;
  const Clock::time_point start = Clock::now();
  while (Clock::now() - start < policy.spin) {
    for (int i = 0; i < kPausesPerClock; ++i) {
      if (load() != seen) return true;
      pause();
    }
  }
  for (int i = 0, yields = yields_now(policy.yields); i < yields; ++i) {
    if (load() != seen) return true;
    if (!yield_core()) break;
  }

  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  bool changed = value_.load(std::memory_order_seq_cst) != seen;
  while (!changed) {
    const auto left = deadline - (Clock::now() - start);
    if (left <= std::chrono::nanoseconds(0)) break;
    futex_sleep(value_, seen, left, FutexScope::process);
    changed = load() != seen;
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return changed;
}

}  // namespace braid::cpu
