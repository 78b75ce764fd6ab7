#include "braid/fabric/local/local_endpoint.h"

#include <cstring>
#include <utility>

#include "braid/fabric/endpoint_rules.h"
#include "braid/fabric/local/local_fabric.h"

namespace braid::fabric {
namespace {

void copy_block(std::byte* dst, const std::byte* src, const Block& block) {
  if (block.packed()) {
    std::memcpy(dst, src, block.bytes());
    return;
  }
  for (int64_t r = 0; r < block.rows; ++r) {
    std::memcpy(dst + r * block.dst_stride, src + r * block.src_stride, block.row_bytes);
  }
}

}  // namespace

// A put or get on an emulated link.
class LocalEndpoint::Pending final : public Transfer::Pending {
 public:
  Pending(LocalFabric& fabric, int rank, Tag tag, std::shared_ptr<LinkEngine::Job> job)
      : fabric_(fabric), rank_(rank), tag_(tag), job_(std::move(job)) {}
  ~Pending() override {
    if (!job_->complete.load(std::memory_order_acquire)) fabric_.engine_->cancel(*job_);
  }
  void wait() override {
    fabric_.wait(
        rank_, {}, [&] { return job_->complete.load(std::memory_order_seq_cst); },
        [&] {
          const bool put = job_->kind == LinkEngine::Job::Kind::put;
          return describe_transfer(fabric_.tags_.name(tag_), put ? Verb::put : Verb::get,
                                   job_->block.bytes(), put ? job_->to : job_->from) +
                 ": not complete";
        });
  }

 private:
  LocalFabric& fabric_;
  const int rank_;
  const Tag tag_;
  const std::shared_ptr<LinkEngine::Job> job_;
};

LocalEndpoint::LocalEndpoint(LocalFabric& fabric, int rank)
    : fabric_(fabric), rank_(rank), counters_(fabric.tags_) {
  const LinkModel& links = fabric.config_.links;
  for (int peer = 0; peer < fabric.config_.ranks; ++peer) {
    const LinkClass link = links.between(rank, peer, fabric.config_.ranks);
    peers_.push_back({link, links.emulated(link)});
  }
}

LinkClass LocalEndpoint::link(int from, int to) const {
  return fabric_.config_.links.between(from, to, world_size());
}

Link LocalEndpoint::speed(int from, int to) const {
  return fabric_.config_.links.speed(link(from, to)).value_or(Link{});
}

Tag LocalEndpoint::tag(std::string_view name) {
  return fabric_.tags_.intern(name);
}

void LocalEndpoint::check() const {
  fabric_.error_.check(rank_);
}

uint64_t LocalEndpoint::peek(SymPtr<Signal> slot) const {
  return counter(slot).load(std::memory_order_acquire);
}

template <class T>
LocalSegment& LocalEndpoint::checked(SymPtr<T> at, int peer, const Block& block,
                                     int64_t stride) const {
  check_range(*this, at, peer, block, stride);
  return static_cast<LocalSegment&>(*at.segment);
}

std::atomic_ref<uint64_t> LocalEndpoint::counter(SymPtr<Signal> slot) const {
  LocalSegment& segment = checked(slot, rank_, {.row_bytes = sizeof(Signal)}, 0);
  return std::atomic_ref<uint64_t>(
      reinterpret_cast<Signal*>(segment.part(rank_) + slot.offset)->value);
}

Transfer LocalEndpoint::put_async(SymPtr<std::byte> dst, int peer, const void* src,
                                  const Block& block, Tag tag) {
  LocalSegment& segment = checked(dst, peer, block, block.dst_stride);
  if (block.bytes() == 0) return {};
  counters_.add(tag, Verb::put, peers_[peer].link, block.bytes());
  std::byte* const to = segment.part(peer) + dst.offset;
  const auto* const from = static_cast<const std::byte*>(src);
  if (!peers_[peer].emulated) {
    copy_block(to, from, block);
    return {};
  }
  return start(LinkEngine::Job::Kind::put, rank_, peer, to, from, block, segment, tag);
}

Transfer LocalEndpoint::get_async(void* dst, SymPtr<std::byte> src, int peer, const Block& block,
                                  Tag tag) {
  LocalSegment& segment = checked(src, peer, block, block.src_stride);
  if (block.bytes() == 0) return {};
  counters_.add(tag, Verb::get, peers_[peer].link, block.bytes());
  auto* const to = static_cast<std::byte*>(dst);
  const std::byte* const from = segment.part(peer) + src.offset;
  if (!peers_[peer].emulated) {
    copy_block(to, from, block);
    return {};
  }
  return start(LinkEngine::Job::Kind::get, peer, rank_, to, from, block, segment, tag);
}

void LocalEndpoint::signal(SymPtr<Signal> slot, int peer, SignalOp op, uint64_t value, Tag tag) {
  constexpr int64_t kSignalBytes = sizeof(uint64_t);
  LocalSegment& segment = checked(slot, peer, {.row_bytes = sizeof(Signal)}, 0);
  counters_.add(tag, Verb::signal, peers_[peer].link, kSignalBytes);
  Signal& target = *reinterpret_cast<Signal*>(segment.part(peer) + slot.offset);
  if (!peers_[peer].emulated) {
    deliver(target, op, value, fabric_.doorbells_[peer]);
    return;
  }
  auto job = std::make_shared<LinkEngine::Job>();
  job->kind = LinkEngine::Job::Kind::signal;
  job->from = rank_;
  job->to = peer;
  job->slot = &target;
  job->op = op;
  job->value = value;
  job->doorbell = &fabric_.doorbells_[peer];
  job->segment = segment.shared_from_this();
  fabric_.engine_->submit(job);
}

void LocalEndpoint::wait(SymPtr<Signal> slot, uint64_t value, const WaitFor& what) {
  const auto seen = counter(slot);
  if (seen.load(std::memory_order_acquire) >= value) return;
  fabric_.wait(
      rank_, what.deadline, [&] { return seen.load(std::memory_order_seq_cst) >= value; },
      [&] { return describe_wait(fabric_.tags_.name(what.tag), slot, what, value, seen.load()); });
}

Transfer LocalEndpoint::start(LinkEngine::Job::Kind kind, int from, int to, std::byte* dst,
                              const std::byte* src, const Block& block, LocalSegment& segment,
                              Tag tag) {
  auto job = std::make_shared<LinkEngine::Job>();
  job->kind = kind;
  job->from = from;
  job->to = to;
  job->dst = dst;
  job->src = src;
  job->block = block;
  job->doorbell = &fabric_.doorbells_[rank_];
  job->segment = segment.shared_from_this();
  fabric_.engine_->submit(job);
  if (job->complete.load(std::memory_order_acquire)) return {};
  return Transfer(std::make_unique<Pending>(fabric_, rank_, tag, std::move(job)));
}

std::shared_ptr<Segment> LocalEndpoint::allocate_bytes(int64_t count, int64_t elem_bytes,
                                                       std::string_view name) {
  return fabric_.allocate(rank_, next_allocation_++, buffer_bytes(count, elem_bytes, name), name);
}

}  // namespace braid::fabric
