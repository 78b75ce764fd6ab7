#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "braid/fabric/allocations.h"
#include "braid/fabric/fabric.h"
#include "braid/fabric/job_error.h"
#include "braid/fabric/local/doorbell.h"
#include "braid/fabric/local/link_engine.h"
#include "braid/fabric/local/local_endpoint.h"

namespace braid::fabric {

struct LocalFabricConfig {
  int ranks = 1;
  int threads_per_rank = 1;                      // that may wait at the same time
  Duration deadline = std::chrono::seconds(60);  // for each wait without a deadline
  LinkModel links;
  std::optional<cpu::WaitPolicy> wait;  // how long a wait spins; default_wait() if absent
};

// With a core for every waiting thread: spins, then yields for most of a millisecond, then sleeps.
// With too few cores, yields at once, to the awaited rank. With emulated links, sleeps: waits are
// long, and a yield may cost a time slice beside computation.
cpu::WaitPolicy default_wait(int threads, int cores, bool emulated);

// A world whose ranks are threads of this process: symmetric memory is plain memory, a put is a
// copy by the caller, a signal a store. Over emulated links both go through a LinkEngine instead,
// and the peer's memory is not mapped. 1 <= ranks <= kMaxRanks.
class LocalFabric final : public Fabric {
 public:
  static constexpr int kMaxRanks = 256;

  explicit LocalFabric(LocalFabricConfig config);
  ~LocalFabric() override;

  int world_size() const override { return config_.ranks; }
  Endpoint& endpoint(int rank) override;
  void abort(int rank, std::exception_ptr error) override;
  void rethrow_error() const override;
  std::string describe() const override;

 private:
  friend class LocalEndpoint;

  // Waits at `rank` until ready(), or throws; describe() names the cause.
  template <class Ready, class Describe>
  void wait(int rank, Duration deadline, Ready&& ready, Describe&& describe);
  std::shared_ptr<Segment> allocate(int rank, int64_t index, int64_t bytes, std::string_view name);

  const LocalFabricConfig config_;
  cpu::WaitPolicy policy_;
  TagTable tags_;
  std::vector<Doorbell> doorbells_;                        // [ranks]
  std::vector<std::unique_ptr<LocalEndpoint>> endpoints_;  // [ranks]
  std::unique_ptr<LinkEngine> engine_;                     // null: no link is emulated

  JobError error_;
  Allocations<Segment> allocations_;
};

template <class Ready, class Describe>
void LocalFabric::wait(int rank, Duration deadline, Ready&& ready, Describe&& describe) {
  constexpr Duration kLongest = std::chrono::hours(24);
  if (deadline <= Duration::zero()) deadline = config_.deadline;
  deadline = std::min(deadline, kLongest);
  const bool ended = doorbells_[rank].wait(policy_, Clock::now() + deadline,
                                           [&] { return ready() || error_.is_set(); });
  if (ready()) return;
  if (ended) error_.throw_aborted(rank, fmt::format("wait for {},", describe()));
  fail(ErrorCode::kDeadline, "rank {}: waited {:.3g} s for {}", rank,
       std::chrono::duration<double>(deadline).count(), describe());
}

}  // namespace braid::fabric
