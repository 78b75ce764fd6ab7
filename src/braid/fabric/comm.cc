#include "braid/fabric/comm.h"

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::fabric {
namespace {

bool has_machines(const Endpoint& endpoint) {
  for (int r = 1; r < endpoint.world_size(); ++r) {
    if (endpoint.link(0, r) == LinkClass::cluster) return true;
  }
  return false;
}

CommConfig validated(CommConfig config, const Endpoint& endpoint) {
  if (config.slot_bytes == 0) {
    config.slot_bytes = has_machines(endpoint) ? Comm::kFarSlotBytes : 128 << 10;
  }
  if (config.lanes < 1) {
    fail(ErrorCode::kInvalidArgument, "comm '{}': {} lanes, must be at least 1", config.name,
         config.lanes);
  }
  if (config.slot_bytes < 64 || config.slot_bytes % 64 != 0) {
    fail(ErrorCode::kInvalidArgument, "comm '{}': slots of {} bytes, must be a multiple of 64",
         config.name, config.slot_bytes);
  }
  return config;
}

int64_t staging_bytes(const CommConfig& config, int world) {
  const auto banks = checked_mul(int64_t{config.lanes} * Comm::kBanks, world);
  const auto bytes = banks ? checked_mul(*banks, config.slot_bytes) : std::nullopt;
  if (!bytes) {
    fail(ErrorCode::kInvalidArgument, "comm '{}': {} lanes of {}-byte slots overflow", config.name,
         config.lanes, config.slot_bytes);
  }
  return *bytes;
}

Link slowest_link(const Endpoint& endpoint, const Group& group) {
  Link slowest;
  for (int a : group.ranks) {
    for (int b : group.ranks) {
      const Link speed = endpoint.speed(a, b);
      if (speed.bytes_per_second > 0 &&
          (slowest.bytes_per_second == 0 || speed.bytes_per_second < slowest.bytes_per_second)) {
        slowest = speed;
      }
    }
  }
  return slowest;
}

}  // namespace

Comm::Comm(Endpoint& endpoint, Group group, CommConfig config)
    : endpoint_(endpoint),
      group_(std::move(group)),
      config_(validated(std::move(config), endpoint)),
      index_(group_.validate(endpoint.world_size(), endpoint.rank())),
      slowest_(slowest_link(endpoint, group_)),
      lane_state_(config_.lanes) {
  const auto tag = [&](const char* op) { return endpoint_.tag(config_.name + "/" + op); };
  tags_ = {tag("all_reduce"), tag("all_gather"), tag("reduce_scatter"),
           tag("all_to_all"), tag("broadcast"),  tag("barrier")};
  for (Lane& lane : lane_state_) lane.views.resize(size());
  // Sized by the world: groups of an axis may differ in size, allocations may not.
  const int world = endpoint_.world_size();
  staging_ =
      endpoint_.allocate<std::byte>(staging_bytes(config_, world), config_.name + "/staging");
  signals_ = endpoint_.allocate<Signal>(int64_t{config_.lanes} * world, config_.name + "/signals");
}

void Exchange::put(int peer, int64_t offset, const void* src, const Block& block) {
  if (block.bytes() == 0) return;
  BRAID_CHECK(offset >= 0 && offset + block.bytes() <= comm_.slot_bytes(),
              "{} bytes at {} of a slot of {}", block.bytes(), offset, comm_.slot_bytes());
  const SymPtr<std::byte> slot =
      comm_.staging_.at(comm_.slot(lane_, state_.sent, comm_.index()) + offset);
  Transfer transfer = comm_.endpoint_.put_async(slot, comm_.group_[peer], src, block, tag_);
  if (!transfer.immediate()) pending_.push_back(std::move(transfer));
}

void Exchange::signal(int peer) {
  comm_.endpoint_.signal(comm_.signals_.at(int64_t{lane_} * comm_.size() + comm_.index()),
                         comm_.group_[peer], SignalOp::set, state_.sent + 1, tag_);
}

const std::byte* Exchange::wait(int peer) {
  comm_.endpoint_.wait(
      comm_.signals_.at(int64_t{lane_} * comm_.size() + peer), state_.taken + 1,
      {.tag = tag_, .from = comm_.group_[peer], .deadline = comm_.config_.deadline});
  return comm_.staging_.data() + comm_.slot(lane_, state_.taken, peer);
}

std::span<const std::byte*> Exchange::take_all() {
  take([&](int peer, const std::byte* data) { state_.views[peer] = data; });
  state_.views[comm_.index()] = nullptr;
  return state_.views;
}

void Exchange::settle() {
  for (Transfer& transfer : pending_) transfer.wait();
  pending_.clear();
}

}  // namespace braid::fabric
