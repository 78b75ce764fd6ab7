#include "braid/backend/cpu/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>

#include "braid/backend/cpu/cpu_quota.h"
#include "braid/base/error.h"

namespace braid::cpu {
namespace {

// Spinning longer than 1 us loses badly when another process takes one of the cores (0.2 to 0.6 ms
// a barrier against 5 us), and gains nothing when none does.
constexpr WaitPolicy kIdle{std::chrono::microseconds(1), 150};
constexpr WaitPolicy kRun{std::chrono::microseconds(1), 500};
constexpr WaitPolicy kOversubscribed{std::chrono::nanoseconds(500), 4};
constexpr std::chrono::hours kForever{24 * 365};

int checked_threads(int threads) {
  if (threads < 1 || threads > ThreadPool::kMaxThreads) {
    fail(ErrorCode::kInvalidArgument, "threads: {} (allowed: 1 to {})", threads,
         ThreadPool::kMaxThreads);
  }
  return threads;
}

WaitPolicy policy_for(int threads, int total_threads, const WaitPolicy& dedicated) {
  return std::max(threads, total_threads) > usable_cores() ? kOversubscribed : dedicated;
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cores = CPU_COUNT(&set);
  if (const std::optional<double> quota = cpu_quota()) {
    cores = static_cast<int>(std::min<double>(cores, std::ceil(*quota)));
  }
  return std::max(1, cores);
}

ThreadPool::ThreadPool(int threads, int total_threads)
    : count_(checked_threads(threads)),
      idle_policy_(policy_for(threads, total_threads, kIdle)),
      run_policy_(policy_for(threads, total_threads, kRun)),
      barrier_(threads, run_policy_) {
  workers_.reserve(count_ - 1);
  try {
    for (int i = 1; i < count_; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error& error) {
    const size_t made = workers_.size();
    stop_ = true;
    started_.advance();
    for (std::thread& worker : workers_) worker.join();
    fail(ErrorCode::kResource, "thread pool: the system gave {} of {} threads: {}", made + 1,
         count_, error.what());
  }
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  started_.advance();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_erased(Call call, void* fn) {
  BRAID_CHECK(!running_.exchange(true), "ThreadPool::run from two places at once");
  call_ = call;
  fn_ = fn;
  const uint32_t finished = finished_.load();
  if (count_ > 1) {
    pending_.store(count_ - 1, std::memory_order_relaxed);
    started_.advance();
  }
  run_part(0);
  // The workers use the caller's fn, so nothing but their return ends this wait; their own waits
  // have deadlines.
  if (count_ > 1) finished_.wait_past(finished, run_policy_, kForever);

  std::exception_ptr error = std::exchange(error_, nullptr);
  if (error) barrier_.reset();
  running_.store(false);
  if (error) std::rethrow_exception(error);
}

void ThreadPool::run_part(int index) {
  try {
    call_(fn_, Team{index, count_, count_ > 1 ? &barrier_ : nullptr});
  } catch (...) {
    {
      std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
    barrier_.abort();
  }
}

void ThreadPool::work(int index) {
  uint32_t seen = 0;
  for (;;) {
    if (!started_.wait_past(seen, idle_policy_, kForever)) continue;
    ++seen;
    if (stop_) return;
    run_part(index);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) finished_.advance();
  }
}

}  // namespace braid::cpu
