#include "braid/fabric/ucx/ucx_fabric.h"

#include <algorithm>
#include <set>
#include <utility>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/fabric/local/local_fabric.h"

namespace braid::fabric {

UcxFabric::UcxFabric(UcxFabricConfig config, std::vector<std::shared_ptr<HostMemory>> memories,
                     UcxWorker& worker, const JobError& error)
    : config_(std::move(config)),
      policy_(default_wait(config_.threads_on_host, cpu::usable_cores(), false)),
      worker_(worker),
      error_(error),
      memories_(std::move(memories)),
      all_mapped_(std::ranges::all_of(memories_, [](const auto& memory) { return !!memory; })),
      next_offset_(memories_.at(static_cast<size_t>(config_.process))->begin()),
      arrivals_(*this),
      outbox_(worker, config_.processes) {
  if (config_.deadline <= Duration::zero()) {
    fail(ErrorCode::kInvalidArgument, "deadline of {} s, must be positive",
         std::chrono::duration<double>(config_.deadline).count());
  }
  BRAID_CHECK(std::ssize(config_.machines) == config_.ranks, "{} machines of {} ranks",
              config_.machines.size(), config_.ranks);
  for (int r = 0; r < ranks_here(); ++r) {
    endpoints_.push_back(std::make_unique<UcxEndpoint>(*this, first_rank() + r));
  }
  worker_.receive(kFabricMessages, &arrivals_);
}

UcxFabric::~UcxFabric() {
  worker_.receive(kFabricMessages, nullptr);
  if (config_.on_close) config_.on_close();
}

Endpoint& UcxFabric::endpoint(int rank) {
  BRAID_CHECK(rank >= 0 && rank < config_.ranks && is_here(rank), "rank {} of {} in process {}",
              rank, config_.ranks, config_.process);
  return *endpoints_[static_cast<size_t>(rank - first_rank())];
}

LinkClass UcxFabric::between(int from, int to) const {
  if (from == to) return LinkClass::device;
  const auto& m = config_.machines;
  return m[static_cast<size_t>(from)] == m[static_cast<size_t>(to)] ? LinkClass::machine
                                                                    : LinkClass::cluster;
}

void UcxFabric::abort(int rank, std::exception_ptr error) {
  config_.on_abort(rank, std::move(error));
  wake();
}

void UcxFabric::wake() {
  for (int r = 0; r < ranks_here(); ++r) doorbell(first_rank() + r).ring();
}

std::string UcxFabric::describe() const {
  const std::set<int> machines(config_.machines.begin(), config_.machines.end());
  return fmt::format("UCX fabric, {} ranks in {} processes on {} machine{}", config_.ranks,
                     config_.processes, machines.size(), machines.size() == 1 ? "" : "s");
}

std::shared_ptr<Segment> UcxFabric::allocate(int rank, int64_t index, int64_t bytes,
                                             std::string_view name) {
  return allocations_.take(rank, ranks_here(), index, bytes, name, [&] {
    auto segment = std::make_shared<UcxSegment>(memories_, config_.process, ranks_here(),
                                                UcxSegment::Place{index, next_offset_},
                                                std::string(name), bytes);
    next_offset_ = segment->end();
    arrivals_.add(segment);
    return segment;
  });
}

}  // namespace braid::fabric
