#include "braid/backend/cpu/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace braid::cpu {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

int flags_of(FutexScope scope) {
  return scope == FutexScope::process ? FUTEX_PRIVATE_FLAG : 0;
}

}  // namespace

void futex_sleep(const std::atomic<uint32_t>& word, uint32_t expected,
                 std::chrono::nanoseconds timeout, FutexScope scope) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  timespec limit{};
  limit.tv_sec = seconds.count();
  limit.tv_nsec = (timeout - seconds).count();
  syscall(SYS_futex, &word, FUTEX_WAIT | flags_of(scope), expected, &limit, nullptr, 0);
}

void futex_wake_all(const std::atomic<uint32_t>& word, FutexScope scope) {
  syscall(SYS_futex, &word, FUTEX_WAKE | flags_of(scope), INT_MAX, nullptr, nullptr, 0);
}

}  // namespace braid::cpu
