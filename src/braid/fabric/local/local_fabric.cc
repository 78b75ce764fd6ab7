#include "braid/fabric/local/local_fabric.h"

#include <utility>

#include "braid/backend/cpu/thread_pool.h"

namespace braid::fabric {
namespace {

std::string what_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

}  // namespace

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
  {
    std::lock_guard lock(error_mutex_);
    if (!error_) {
      failed_rank_ = rank;
      error_ = error;
      error_text_ = what_of(error);
    }
  }
  aborted_.store(true, std::memory_order_seq_cst);
  for (Doorbell& doorbell : doorbells_) doorbell.ring();
}

void LocalFabric::rethrow_error() const {
  std::lock_guard lock(error_mutex_);
  if (error_) std::rethrow_exception(error_);
}

void LocalFabric::throw_aborted(int rank, const std::string& doing) const {
  std::lock_guard lock(error_mutex_);
  fail(ErrorCode::kAborted, "rank {}: {} aborted, rank {} failed: {}", rank, doing, failed_rank_,
       error_text_);
}

void LocalFabric::check(int rank) const {
  if (aborted_.load(std::memory_order_acquire)) throw_aborted(rank, "work");
}

std::shared_ptr<Segment> LocalFabric::allocate(int rank, int64_t index, int64_t bytes,
                                               std::string_view name) {
  std::lock_guard lock(allocation_mutex_);
  if (index == std::ssize(allocations_)) {
    allocations_.push_back(
        {std::make_shared<LocalSegment>(config_.links, config_.ranks, std::string(name), bytes),
         std::string(name), bytes, rank, 0});
  }
  Allocation& allocation = allocations_[index];
  if (allocation.name != name || allocation.bytes != bytes) {
    fail(ErrorCode::kInvalidArgument,
         "symmetric allocation {}: rank {} asks for '{}' of {} bytes, rank {} for '{}' of {}",
         index, rank, name, bytes, allocation.first_rank, allocation.name, allocation.bytes);
  }
  std::shared_ptr<Segment> segment = allocation.segment;
  if (++allocation.takers == config_.ranks) allocation.segment.reset();
  return segment;
}

}  // namespace braid::fabric
