#include "braid/backend/cpu/pool_of_at_most.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>

#include "braid/base/error.h"

namespace braid::cpu {
namespace {

// Threads that together run a part each.
int threads_that_run(ThreadPool& pool) {
  std::atomic<int> ran{0};
  pool.run([&](const Team& team) {
    team.barrier();
    ++ran;
  });
  return ran;
}

TEST(PoolOfAtMost, HasAllThreadsThatTheSystemGives) {
  for (int threads : {1, 4}) EXPECT_EQ(threads_that_run(*pool_of_at_most(threads)), threads);
  EXPECT_THROW(pool_of_at_most(0), Error);
}

// A process with memory for the stacks of about two threads more.
TEST(PoolOfAtMost, GoesOnWithFewer) {
  const pid_t child = fork();
  if (child == 0) {
    constexpr rlim_t kStack = 64 << 20;
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStack);
    const rlim_t most = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + 5 * kStack / 2;
    const rlimit limit{most, most};
    if (pthread_setattr_default_np(&attributes) != 0 || setrlimit(RLIMIT_AS, &limit) != 0) {
      _exit(100);
    }
    const auto pool = pool_of_at_most(8);
    _exit(threads_that_run(*pool) == pool->threads() ? pool->threads() : 101);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_GT(WEXITSTATUS(status), 1);
  EXPECT_LT(WEXITSTATUS(status), 8);
}

}  // namespace
}  // namespace braid::cpu
