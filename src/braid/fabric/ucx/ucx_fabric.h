#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "braid/fabric/allocations.h"
#include "braid/fabric/fabric.h"
#include "braid/fabric/job_error.h"
#include "braid/fabric/local/doorbell.h"
#include "braid/fabric/ucx/ucx_arrivals.h"
#include "braid/fabric/ucx/ucx_endpoint.h"
#include "braid/fabric/ucx/ucx_outbox.h"
#include "braid/fabric/ucx/ucx_segment.h"
#include "braid/fabric/ucx/ucx_worker.h"

namespace braid::fabric {

struct UcxFabricConfig {
  int ranks = 1;  // a multiple of the processes; process p has the p-th part
  int processes = 1;
  int process = 0;
  uint32_t generation = 0;    // equal on all processes; another number for each fabric of a worker
  std::vector<int> machines;  // [ranks] where each is
  int threads_on_host = 1;    // threads, over all ranks on this host, that may wait at once
  Duration deadline = std::chrono::seconds(60);  // for each wait without a deadline
  // Called with an error of this process' rank, for the job to tell the others; sets the error.
  std::function<void(int rank, std::exception_ptr error)> on_abort;
  std::function<void()> on_close;  // the fabric is gone
};

// A world with ranks in several processes. Between ranks of a process, and to processes of this
// host whose memory is mapped, a put is a copy and a signal a store. To other processes both are
// active messages over a single connection, in order: a reader of the signal has the data, without
// a flush (a round trip) between. Made by all processes before any sends.
class UcxFabric final : public Fabric {
 public:
  // `worker` is connected to all processes; it and `error`, the job's, outlive the fabric.
  // `memories`: [processes], this process' own, and others' that it can map, else null.
  UcxFabric(UcxFabricConfig config, std::vector<std::shared_ptr<HostMemory>> memories,
            UcxWorker& worker, const JobError& error);
  ~UcxFabric() override;

  int world_size() const override { return config_.ranks; }
  int first_rank() const override { return config_.process * ranks_here(); }
  int ranks_here() const override { return config_.ranks / config_.processes; }
  Endpoint& endpoint(int rank) override;
  void abort(int rank, std::exception_ptr error) override;
  void rethrow_error() const override { error_.rethrow(); }
  std::string describe() const override;

  // Wakes all waits, to look at the job's error.
  void wake();

 private:
  friend class UcxEndpoint;
  friend class UcxArrivals;

  int process_of(int rank) const { return rank / ranks_here(); }
  bool is_here(int rank) const { return process_of(rank) == config_.process; }
  LinkClass between(int from, int to) const;
  // For a rank with mapped memory.
  Doorbell& doorbell(int rank) {
    return memories_[static_cast<size_t>(process_of(rank))]->doorbell(rank % ranks_here());
  }
  // Waits at `rank` until ready(), making progress, or throws; describe() names the cause.
  template <class Ready, class Describe>
  void wait(int rank, Duration deadline, Ready&& ready, Describe&& describe);
  std::shared_ptr<Segment> allocate(int rank, int64_t index, int64_t bytes, std::string_view name);

  const UcxFabricConfig config_;
  cpu::WaitPolicy policy_;
  UcxWorker& worker_;
  const JobError& error_;
  TagTable tags_;
  const std::vector<std::shared_ptr<HostMemory>> memories_;  // [processes]
  const bool all_mapped_;                                    // no rank is reached by messages
  std::vector<std::unique_ptr<UcxEndpoint>> endpoints_;      // [ranks here]
  Allocations<UcxSegment> allocations_;
  int64_t next_offset_;  // of a segment, in every process' memory
  UcxArrivals arrivals_;
  UcxOutbox outbox_;
};

template <class Ready, class Describe>
void UcxFabric::wait(int rank, Duration deadline, Ready&& ready, Describe&& describe) {
  constexpr Duration kLongest = std::chrono::hours(24);
  if (deadline <= Duration::zero()) deadline = config_.deadline;
  deadline = std::min(deadline, kLongest);
  const bool ended = doorbell(rank).wait(policy_, Clock::now() + deadline, [&] {
    if (ready() || error_.is_set()) return true;
    return !all_mapped_ && worker_.progress() && ready();
  });
  if (ready()) return;
  if (ended) error_.throw_aborted(rank, fmt::format("wait for {},", describe()));
  fail(ErrorCode::kDeadline, "rank {}: waited {:.3g} s for {}", rank,
       std::chrono::duration<double>(deadline).count(), describe());
}

}  // namespace braid::fabric
