#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <vector>

#include "braid/backend/backend.h"
#include "braid/backend/cpu/kernel_table.h"
#include "braid/backend/cpu/stream_thread.h"
#include "braid/backend/cpu/thread_pool.h"

namespace braid::cpu {

// Called with a run's first error at once, from the failing thread: the callback can then end other
// waits on this rank (other streams' waits for other ranks).
using OnError = std::function<void(std::exception_ptr error)>;

// Launches bound to kernels, replayed over a rank's streams.
class CpuReplay : public Replay {
 public:
  using Threads = PerStream<StreamThread*>;  // null for compute and unused streams

  // `on_error` outlives the replay; it may be empty.
  CpuReplay(std::vector<BoundOp> launches, const KernelTable& table, ThreadPool& pool,
            const Threads& threads, const OnError& on_error);

  void run(std::span<LaunchTime> times) override;

 private:
  static constexpr std::chrono::seconds kDeadline{600};

  // A stream's launches, and the number of ended launches over all runs so far.
  struct Queue {
    std::vector<int> launches;
    WakeCounter ended;
    uint32_t base = 0;  // `ended` before this run
  };
  struct Job {
    CpuReplay* replay = nullptr;
    Stream stream = Stream::compute;
  };

  void walk(Stream stream, const Team& team);
  void wait_for(int launch);
  void abort(std::exception_ptr error);

  std::vector<BoundOp> ops_;
  std::vector<OpCall> calls_;
  std::vector<BoundKernel> kernels_;
  std::vector<uint32_t> position_;  // [launches] place in its stream
  PerStream<Queue> queues_;
  PerStream<Job> jobs_;
  std::span<LaunchTime> times_;
  std::atomic<bool> aborted_{false};
  std::exception_ptr error_;  // from the stream that set aborted_
  ThreadPool& pool_;
  const Threads threads_;
  const OnError& on_error_;
  const WaitPolicy policy_;
};

}  // namespace braid::cpu
