#include "braid/backend/cpu/team.h"

#include "braid/base/error.h"

namespace braid::cpu {

void Barrier::wait() {
  const uint32_t phase = phase_.load();
  if (aborted_.load(std::memory_order_acquire)) {
    fail(ErrorCode::kAborted, "another thread of the team failed");
  }
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == count_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.advance();
    return;
  }
  const bool in_time = phase_.wait_past(phase, policy_, deadline_);
  if (aborted_.load(std::memory_order_acquire)) {
    fail(ErrorCode::kAborted, "another thread of the team failed");
  }
  if (!in_time) {
    const int arrived = arrived_.load();
    abort();
    fail(ErrorCode::kDeadline, "team barrier: {} of {} threads arrived within {} s", arrived,
         count_, std::chrono::duration<double>(deadline_).count());
  }
}

void Barrier::abort() {
  aborted_.store(true, std::memory_order_release);
  phase_.advance();
}

void Barrier::reset() {
  arrived_.store(0, std::memory_order_relaxed);
  aborted_.store(false, std::memory_order_release);
}

}  // namespace braid::cpu
