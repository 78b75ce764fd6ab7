// A thread that shares its core with a busy one stops to yield, and tries again later.
#include "braid/backend/cpu/yield.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace braid::cpu {
namespace {

void stay_on(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

TEST(YieldTest, ACoreThatIsTakenIsNotYieldedForAWhile) {
  const int core = sched_getcpu();
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    stay_on(core);
    while (!stop) {
    }
  });
  std::thread waiting([&] {
    stay_on(core);
    EXPECT_EQ(yields_now(500), 500);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    bool kept = true;
    while (kept && std::chrono::steady_clock::now() < end) kept = yield_core();
    EXPECT_FALSE(kept) << "the busy thread never took the core";
    int waits = 0;
    while (yields_now(500) == 0) ++waits;
    EXPECT_EQ(waits, 4096);
    EXPECT_EQ(yields_now(500), 500);
  });
  waiting.join();
  stop = true;
  busy.join();
}

}  // namespace
}  // namespace braid::cpu
