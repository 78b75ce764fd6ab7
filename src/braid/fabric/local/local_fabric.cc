#include "braid/fabric/local/local_fabric.h"

#include <utility>

#include "braid/backend/cpu/thread_pool.h"

namespace braid::fabric {

cpu::WaitPolicy default_wait(int threads, int cores, bool emulated) {
  if (emulated) return {std::chrono::microseconds(1), 0};
  if (threads > cores) return {std::chrono::nanoseconds(0), 64};
  return {std::chrono::microseconds(1), 2000};
}

LocalFabric::LocalFabric(LocalFabricConfig config) : config_(std::move(config)) {
  if (config_.ranks < 1 || config_.ranks > kMaxRanks) {
    fail(ErrorCode::kInvalidArgument, "{} ranks, must be 1 to {}", config_.ranks, kMaxRanks);
  }
  if (config_.deadline <= Duration::zero()) {
    fail(ErrorCode::kInvalidArgument, "deadline of {} s, must be positive",
         std::chrono::duration<double>(config_.deadline).count());
  }
  config_.links.validate(config_.ranks);
  policy_ = config_.wait ? *config_.wait
                         : default_wait(config_.ranks * config_.threads_per_rank,
                                        cpu::usable_cores(), config_.links.any_emulated());
  doorbells_ = std::vector<Doorbell>(config_.ranks);
  if (config_.links.any_emulated()) {
    engine_ = std::make_unique<LinkEngine>(config_.links, config_.ranks);
  }
  for (int rank = 0; rank < config_.ranks; ++rank) {
    endpoints_.push_back(std::make_unique<LocalEndpoint>(*this, rank));
  }
}

LocalFabric::~LocalFabric() = default;

Endpoint& LocalFabric::endpoint(int rank) {
  BRAID_CHECK(rank >= 0 && rank < config_.ranks, "rank {} of {}", rank, config_.ranks);
  return *endpoints_[rank];
}

std::string LocalFabric::describe() const {
  return fmt::format("local fabric, {} rank{}, {}", config_.ranks, config_.ranks == 1 ? "" : "s",
                     config_.links.describe(config_.ranks));
}

void LocalFabric::abort(int rank, std::exception_ptr error) {
  error_.set(rank, error);
  for (Doorbell& doorbell : doorbells_) doorbell.ring();
}

void LocalFabric::rethrow_error() const {
  error_.rethrow();
}

std::shared_ptr<Segment> LocalFabric::allocate(int rank, int64_t index, int64_t bytes,
                                               std::string_view name) {
  return allocations_.take(rank, config_.ranks, index, bytes, name, [&] {
    return std::make_shared<LocalSegment>(config_.links, config_.ranks, std::string(name), bytes);
  });
}

}  // namespace braid::fabric
