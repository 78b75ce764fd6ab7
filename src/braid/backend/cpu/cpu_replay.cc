#include "braid/backend/cpu/cpu_replay.h"

#include <utility>

#include "braid/base/clock.h"
#include "braid/base/error.h"

namespace braid::cpu {
namespace {

// Waits are mostly for a transfer or a whole product: soon give up the core.
constexpr WaitPolicy kStreamWait{std::chrono::microseconds(1), 50};

}  // namespace

CpuReplay::CpuReplay(std::vector<BoundOp> launches, const KernelTable& table, ThreadPool& pool,
                     const Threads& threads, const OnError& on_error)
    : ops_(std::move(launches)),
      pool_(pool),
      threads_(threads),
      on_error_(on_error),
      policy_(kStreamWait) {
  calls_.reserve(ops_.size());  // bound kernels keep references into it
  for (const BoundOp& launch : ops_) {
    calls_.push_back({launch.op, launch.in, launch.out, launch.axis, launch.part});
    kernels_.push_back(table.at(launch.op->def->kind)
                           .bind({calls_.back(), launch.workspace, table.threads(launch.stream),
                                  launch.stream, launch.arena, launch.joined}));
    Queue& queue = queues_[launch.stream];
    position_.push_back(static_cast<uint32_t>(queue.launches.size()));
    queue.launches.push_back(static_cast<int>(position_.size()) - 1);
  }
  for (Stream stream : kStreams) jobs_[stream] = {this, stream};
}

void CpuReplay::run(std::span<LaunchTime> times) {
  BRAID_CHECK(times.empty() || times.size() == ops_.size(), "{} times of {} launches", times.size(),
              ops_.size());
  times_ = times;
  aborted_.store(false, std::memory_order_relaxed);
  for (Queue& queue : queues_) queue.base = queue.ended.load();
  const auto used = [&](size_t s) {
    return threads_[s] != nullptr && !queues_[s].launches.empty();
  };
  for (size_t s = 0; s < threads_.size(); ++s) {
    if (!used(s)) continue;
    threads_[s]->start(
        [](void* arg) {
          auto* job = static_cast<Job*>(arg);
          try {
            job->replay->walk(job->stream, Team{});
          } catch (...) {
            job->replay->abort(std::current_exception());
          }
        },
        &jobs_[s]);
  }
  try {
    pool_.run([this](const Team& team) { walk(Stream::compute, team); });
  } catch (...) {
    abort(std::current_exception());
  }
  for (size_t s = 0; s < threads_.size(); ++s) {
    if (used(s)) threads_[s]->join();
  }
  if (std::exception_ptr error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
}

void CpuReplay::walk(Stream stream, const Team& team) {
  Queue& queue = queues_[stream];
  for (int i : queue.launches) {
    const size_t index = i;
    for (const Wait& wait : ops_[index].waits) wait_for(wait.launch);
    if (!times_.empty() && team.index == 0) times_[index].begin = steady_seconds();
    kernels_[index](team);
    team.barrier();
    if (team.index != 0) continue;
    if (!times_.empty()) times_[index].end = steady_seconds();
    queue.ended.advance();
  }
}

void CpuReplay::wait_for(int launch) {
  const size_t index = launch;
  Queue& queue = queues_[ops_[index].stream];
  for (;;) {
    const uint32_t ended = queue.ended.load();
    if (aborted_.load(std::memory_order_acquire)) {
      fail(ErrorCode::kAborted, "another stream of the rank failed");
    }
    if (ended - queue.base > position_[index]) return;
    if (!queue.ended.wait_past(ended, policy_, kDeadline)) {
      fail(ErrorCode::kDeadline,
           "stream {}: {} of {} launches ended, launch {} ({}) not within {} s",
           to_string(ops_[index].stream), ended - queue.base, queue.launches.size(), launch,
           ops_[index].op->def->kind, std::chrono::duration<double>(kDeadline).count());
    }
  }
}

// The first error is the cause, later errors are its consequences. Wakes all waiters; the counters'
// values are void until the next run.
void CpuReplay::abort(std::exception_ptr error) {
  const bool first = !aborted_.exchange(true, std::memory_order_acq_rel);
  if (first) error_ = error;
  for (Queue& queue : queues_) queue.ended.advance();
  if (first && on_error_) on_error_(error);
}

}  // namespace braid::cpu
